// Package fleet knows several storage servers: the file that lists them, and how they are read at
// the same time, so that a server that does not respond delays no other.
//
// The package must not know how a server is called, or what is read there.
package fleet
