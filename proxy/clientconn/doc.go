// Package clientconn limits the connections of a server's clients: how many are open, in all and
// from one source, and how slowly a client may read a response. It takes numbers and works below
// TLS.
//
// It does not depend on HTTP's requests, on users, or on any other package of the proxy.
package clientconn
