// Package debian unpacks Debian packages with their dependencies into a directory. It needs no
// root, runs no maintainer scripts, and changes nothing on the machine. It does not depend on the
// purpose of the packages.
package debian
