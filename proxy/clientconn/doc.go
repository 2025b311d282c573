// Package clientconn limits the connections of a server's clients: how many are open, in total and
// from one source, and how slowly a client may read a response. It takes plain numbers and works
// below TLS.
//
// It does not depend on HTTP requests, users, or any other package of the proxy.
package clientconn
