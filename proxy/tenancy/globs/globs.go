// Package globs compares names with globs (* ? [a-z]), and globs with each other.
//
// The package must not depend on what the names mean.
package globs

import (
	"path"
	"strings"
)

// MatchesAny reports whether a name matches one of the globs. Invalid globs match nothing.
func MatchesAny(globs []string, name string) bool {
	for _, glob := range globs {
		if ok, err := path.Match(glob, name); ok && err == nil {
			return true
		}
	}
	return false
}

// Overlap reports whether two globs may match the same name. If both contain wildcards, it compares
// only their literal prefixes.
func Overlap(x, y string) bool {
	lx, ly := Literal(x), Literal(y)
	switch {
	case lx == x:
		ok, _ := path.Match(y, x)
		return ok
	case ly == y:
		ok, _ := path.Match(x, y)
		return ok
	}
	return strings.HasPrefix(lx, ly) || strings.HasPrefix(ly, lx)
}

// Literal returns the part of a glob before its first wildcard.
func Literal(glob string) string {
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		return glob[:i]
	}
	return glob
}
