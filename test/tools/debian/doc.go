// Package debian unpacks Debian packages with their dependencies into a directory. It does not need
// root, does not run maintainer scripts, and does not change anything on the machine. It does not
// depend on the purpose of the packages.
package debian
