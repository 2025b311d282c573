// Package rpcschema describes SPDK's JSON-RPC: every method with its parameters, result and errors,
// the releases that have it, and the kinds of objects that its values name. All of it is in one
// document (openrpc.json, which `make generate` assembles from areas/*.yaml). The typed client is
// generated from the document; the proxy uses it to validate, authorise and redact calls, and the
// simulated target to answer them.
//
// The package must not know how a request is transported, who sends it, or what is decided about
// it.
package rpcschema

//go:generate go run ./rpcgen -areas areas -openrpc openrpc.json -client spdkrpc -manual ../docs/methods
