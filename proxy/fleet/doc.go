// Package fleet handles several storage servers: it reads the file that lists them, and queries
// them concurrently, so that an unresponsive server does not delay the others.
//
// The package must not depend on how a server is called, or what is read from it.
package fleet
