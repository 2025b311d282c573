// Package rpcschema describes SPDK's JSON-RPC: every method with its parameters, result and errors,
// the releases that have it, and the kinds of objects that its values name. All of this is in one
// document (openrpc.json, which `make generate` assembles from areas/*.yaml). The typed client is
// generated from that document. The proxy uses it to validate, authorise and redact calls; the
// simulated target, to answer them.
//
// The package must not know how a request is transported, who sends it, or whether it is allowed.
package rpcschema

//go:generate go run ./rpcgen -areas areas -openrpc openrpc.json -client spdkrpc -manual ../docs/methods
