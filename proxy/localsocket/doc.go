// Package localsocket creates and removes UNIX sockets that programs of this host connect to. It
// also reports which user a program at the other end runs as.
//
// It must not know what is sent on a socket, and which users may send it.
package localsocket
