// Package stream serves connections on which JSON-RPC messages follow each other: WebSockets, and
// the socket for programs of this host, which speaks SPDK's own protocol. Each message passes the
// gate like an HTTP request, and has its own entry in the audit log.
//
// It must not decide who may do what, and must not depend on what a call does or on HTTP's pages.
package stream
