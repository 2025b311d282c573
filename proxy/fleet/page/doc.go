// Package page serves the output of spdk-proxy fleet as a web page on this host, only to the person
// who runs the command.
//
// The package must not depend on how storage servers are read.
package page
