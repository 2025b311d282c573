package tenancy

import (
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/tenancy/addresses"
)

// Scopes returns the scopes of all tenants, by name.
func (t *Tenancy) Scopes() (list []*Scope) {
	for _, name := range slices.Sorted(maps.Keys(t.scopes)) {
		list = append(list, t.scopes[name])
	}
	return list
}

// AllowsAddress reports whether the tenant may listen at an address.
func (s *Scope) AllowsAddress(host, port string) bool {
	return addresses.Parts{Host: host, Port: port}.In(s.addresses)
}

// Owns reports whether a name of this kind (lvstore, bdev, nqn, …) belongs to the tenant, based on
// the name alone. A volume must be named as LVSTORE/LVOL, because a UUID does not show its owner.
func (s *Scope) Owns(kind, name string) bool { return s.ownsNamed(kind, name) }
