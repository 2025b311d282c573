package controller

import (
	"slices"
	"sync"
)

// nodeNames maps the host names that targets store back to node ids. A host name is a hash of a
// node id, so nodeNames contains only nodes that this process has published a volume to or
// unpublished a volume from. nodeNames is safe for concurrent use; the zero value is empty.
type nodeNames struct {
	mu  sync.Mutex
	ids map[string]string
}

// note records a node.
func (n *nodeNames) note(id string) {
	h := hostOf(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids == nil {
		n.ids = map[string]string{}
	}
	n.ids[h.NQN], n.ids[h.Multipath], n.ids[h.IQN] = id, id, id
}

// of returns the ids of the nodes with these names, without duplicates. It omits the names of
// unrecorded nodes.
func (n *nodeNames) of(hosts []string) (ids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, h := range hosts {
		if id, ok := n.ids[h]; ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
