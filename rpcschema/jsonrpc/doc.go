// Package jsonrpc implements the form of JSON-RPC 2.0 that spdk_tgt uses: requests and replies on
// the wire, strict decoding, and errors with their codes.
//
// When a request cannot be parsed or exceeds a limit, spdk_tgt closes the connection, which ends
// every other call in flight on it. It matches names exactly and refuses duplicate members. A
// client's text must therefore never be forwarded: this package decodes it strictly into values,
// from which the request to the target is written.
//
// The package must not know any method, transport, user or policy, and imports only the standard
// library and a JSON parser.
package jsonrpc
