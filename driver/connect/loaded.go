package connect

import (
	"maps"
	"slices"
)

// LoadedTransports returns a sorted list of the transports whose modules are currently loaded. It
// does not load any modules, although the first volume of another transport may still cause that
// transport's module to be loaded. LoadedTransports uses only the field Root of o.
func LoadedTransports(o Options) []string {
	n := newNode(o.Root)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(moduleOf)), func(t string) bool { return !n.hasModule(moduleOf[t]) })
}
