package connect

import (
	"maps"
	"slices"
)

// LoadedTransports returns the transports whose modules are now loaded, sorted. LoadedTransports
// itself loads no modules: the first volume of another transport may still load its module. Of o,
// only Root is used.
func LoadedTransports(o Options) []string {
	n := newNode(o.Root)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(moduleOf)), func(t string) bool { return !n.hasModule(moduleOf[t]) })
}
