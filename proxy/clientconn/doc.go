// Package clientconn limits the connections of a server's clients: how many are open, in all and
// from one source, and how slowly a client may read an answer. It takes numbers and works below
// TLS.
//
// It may not know HTTP's requests or users, nor any other room of the proxy.
package clientconn
