// Package directory reads and writes files in a directory that another user could manipulate. It
// follows no link, reads no file that another user may have created, and returns from a write when
// the file is durable.
//
// It must not depend on what the files contain: package persist decides that.
package directory
