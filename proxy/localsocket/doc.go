// Package localsocket has UNIX sockets that programs of this host connect to: how such a socket is
// created and removed, and which user a program at the other end runs as.
//
// It must not know what is sent on a socket, and which users may send it.
package localsocket
