// Package debian unpacks Debian packages with their dependencies into a directory. It does not need
// root and changes nothing on the machine; maintainer scripts do not run. It knows nothing about
// the purpose of the packages.
package debian
