// Package jsonrpc implements JSON-RPC 2.0 as spdk_tgt uses it: requests and responses on the wire,
// strict decoding, and errors with their codes.
//
// If a request cannot be parsed or exceeds a limit, spdk_tgt closes the connection, which also ends
// every other call in flight on that connection. spdk_tgt matches names exactly and refuses
// duplicate members. Therefore, a client's text must never be forwarded: this package decodes it
// strictly into values, and the request to the target is written from these values.
//
// The package must not depend on any method, transport, user or policy. It imports only the
// standard library and a JSON parser.
package jsonrpc
