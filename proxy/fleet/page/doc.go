// Package page serves what spdk-proxy fleet shows as a web page on this host, to the person who
// runs the command and nobody else.
//
// The package must not depend on how storage servers are read.
package page
