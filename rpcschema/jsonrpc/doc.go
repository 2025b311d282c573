// Package jsonrpc implements the form of JSON-RPC 2.0 that spdk_tgt uses: requests and replies on
// the wire, strict decoding, and errors with their codes.
//
// spdk_tgt closes the connection, and so ends every other call in flight on it, when a request
// cannot be parsed or exceeds a limit. It matches names exactly and refuses duplicate members. So
// the text of a client must never be forwarded: this package decodes it strictly into values, and
// the request to the target is written from these values.
//
// It may not know any method, transport, user or policy, and imports only the standard library and
// a JSON parser.
package jsonrpc
