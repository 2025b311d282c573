// Package structure tests which packages may import which others, with the reason for each rule. It
// also tests package names, shadowed names, log keys, and the width of comments. The tests depend
// only on import paths and syntax. docs/design/packages.md describes the packages.
package structure
