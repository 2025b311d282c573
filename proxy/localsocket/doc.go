// Package localsocket creates and removes UNIX sockets for programs on this host. It also
// identifies the user who runs the program at the other end.
//
// The package must not depend on the data sent over a socket, or on which users may connect.
package localsocket
