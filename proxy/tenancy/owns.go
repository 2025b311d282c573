package tenancy

import (
	"maps"
	"slices"
)

// Scopes returns the scopes of all tenants, by name.
func (t *Tenancy) Scopes() (list []*Scope) {
	for _, name := range slices.Sorted(maps.Keys(t.scopes)) {
		list = append(list, t.scopes[name])
	}
	return list
}

// Owns reports whether a name of some kind (lvstore, bdev, nqn, …) belongs to the tenant, judging
// by its spelling alone. A volume must be named as LVSTORE/LVOL, because a UUID's spelling does not
// show its owner.
func (s *Scope) Owns(kind, name string) bool { return s.ownsNamed(kind, name) }
