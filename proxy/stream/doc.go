// Package stream serves connections that carry a sequence of JSON-RPC messages: WebSockets, and the
// socket for programs on this host, which speaks SPDK's own protocol. Each message passes through
// the gate like an HTTP request, and has its own entry in the audit log.
//
// The package must not authorize users, and must not depend on the effects of calls or on HTTP
// pages.
package stream
