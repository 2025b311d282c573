// Package clientconn limits the connections of a server's clients: their number, in total and per
// source, and how slowly a client may read a response. The package works below TLS, and its limits
// are plain numbers.
//
// The package must not depend on HTTP requests, users, or any other package of the proxy.
package clientconn
