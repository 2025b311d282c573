// Package rpcschema describes SPDK's JSON-RPC interface: the parameters, result and errors of every
// method, the releases that support it, and the kinds of objects that its values name. This
// description is a single document, openrpc.json. `make generate` assembles it from areas/*.yaml,
// and generates the typed client from it. The proxy uses the document to validate, authorize and
// redact calls; the simulated target uses it to respond to them.
//
// The package must not depend on how a request is transported, who sends it, or whether it is
// allowed.
package rpcschema

//go:generate go run ./rpcgen -areas areas -openrpc openrpc.json -client spdkrpc -manual ../docs/methods
