// Package clientconn bounds what clients do to a server's connections: how many are
// open, in all and from one source, and how slowly an answer is taken. It takes numbers
// and works below TLS.
//
// It may not know HTTP's requests or users, nor any other room of the proxy.
package clientconn
