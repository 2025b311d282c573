// Package fleet manages lists of storage servers: it reads the file that lists them, and queries
// them concurrently, so that an unresponsive server does not delay the others.
//
// The package must not depend on the way servers are called, or on the data that they return.
package fleet
