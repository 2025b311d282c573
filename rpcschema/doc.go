// Package rpcschema says what SPDK understands: every JSON-RPC method with its
// parameters, results, errors, the releases that know it and what its values
// name. One document holds it all (openrpc.json, assembled by `make generate`
// from areas/*.yaml); the typed client is generated from it, the proxy
// validates, authorises and redacts by it, and the simulated target obeys it.
//
// It may not know how a request travels, who sends it, or what is decided on it.
package rpcschema

//go:generate go run ./rpcgen -areas areas -openrpc openrpc.json -client spdkrpc -manual ../docs/methods
