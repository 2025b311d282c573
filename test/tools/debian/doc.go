// Package debian unpacks Debian packages with their dependencies into a directory. It needs no root
// and changes nothing on the machine; maintainer scripts do not run. It knows nothing of what the
// packages are for.
package debian
