package connect

import (
	"maps"
	"slices"
)

// LoadedTransports returns the transports whose modules the kernel has now, sorted. It loads none:
// the first volume of another transport may still load its module. Only Root of the options is
// used.
func LoadedTransports(o Options) []string {
	n := newNode(o.Root)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(moduleOf)), func(t string) bool { return !n.hasModule(moduleOf[t]) })
}
