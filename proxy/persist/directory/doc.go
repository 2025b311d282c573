// Package directory reads and writes files in a directory that another user could manipulate. It
// follows no links, reads no files that another user may have created, and returns from a write
// once the file is durable.
//
// It must not depend on what the files contain, which package persist decides.
package directory
