// Package fleet handles several storage servers: it reads the file that lists them, and queries
// them concurrently, so that an unresponsive server does not delay the others.
//
// The package must not depend on how a server is called, or on the data that it returns.
package fleet
