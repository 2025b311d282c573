// Package structure tests the rules which package may import which, each with its reason, and rules
// of names: of packages, of what must not be shadowed, of keys in logs, and the width of comments.
// It knows import paths and syntax only. docs/design/rooms.md describes the packages, which it
// calls rooms.
package structure
