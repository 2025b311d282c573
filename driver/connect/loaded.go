package connect

import (
	"maps"
	"slices"
)

// LoadedTransports returns a sorted list of the transports whose modules are currently loaded. It
// loads no modules. A transport that is not in the list may still work, because its first volume
// causes its module to be loaded. Only the field Root of o is used.
func LoadedTransports(o Options) []string {
	n := newNode(o.Root)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(moduleOf)), func(t string) bool { return !n.hasModule(moduleOf[t]) })
}
