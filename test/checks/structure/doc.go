// Package structure tests which package may import which, with the reason of each rule. It also
// tests the names of packages, shadowed names, the keys in logs, and the width of comments. It
// knows import paths and syntax only. docs/design/packages.md describes the packages.
package structure
