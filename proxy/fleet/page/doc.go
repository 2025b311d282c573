// Package page serves the output of spdk-proxy fleet as a web page on this host, but only to the
// person who runs the command.
//
// The package must not depend on the way storage servers are read.
package page
