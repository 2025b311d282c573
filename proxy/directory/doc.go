// Package directory reads and writes files in a directory that another user could manipulate. It
// follows no links, and reads no files that another user may have created. A write returns once the
// file is durable.
//
// The package must not depend on the contents of the files.
package directory
