// Package localsocket creates and removes UNIX sockets to which programs on this host connect. It
// also reports which user runs the program at the other end.
//
// The package must not depend on the data sent over a socket, or on which users may connect.
package localsocket
