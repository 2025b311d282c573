// Package jsonrpc holds JSON-RPC 2.0 as spdk_tgt speaks it: requests and
// replies on the wire, strict decoding, and errors with their codes.
//
// spdk_tgt closes the connection, with every other call in flight on it, when
// something does not parse or does not fit; it matches names exactly and
// refuses duplicate members. So nothing that a client sent may ever be
// forwarded as it came: it is decoded here, strictly, into values, and what
// is sent on is written anew from those values.
//
// It may not know any method, transport, user or policy, and imports only the
// standard library and a JSON parser.
package jsonrpc
