// Package localsocket creates and removes UNIX sockets to which programs on this host connect. It
// also reports the user as which the program at the other end runs.
//
// It must not depend on what is sent over a socket, or which users may send it.
package localsocket
