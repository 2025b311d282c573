// Package structure tests the rules which package may import which, each with its reason. It
// knows only the import paths of packages. DESIGN.md describes the packages, which it calls rooms.
package structure
