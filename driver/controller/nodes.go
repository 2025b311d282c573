package controller

import (
	"slices"
	"sync"
)

// nodeNames translates the names under which targets know nodes back into ids. The names are hashes
// of ids, so nodeNames knows only nodes for which this process has published or unpublished a
// volume. It is safe for concurrent use; the zero value is empty.
type nodeNames struct {
	mu  sync.Mutex
	ids map[string]string
}

// note remembers a node.
func (n *nodeNames) note(id string) {
	h := hostOf(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids == nil {
		n.ids = map[string]string{}
	}
	n.ids[h.NQN], n.ids[h.Multipath], n.ids[h.IQN] = id, id, id
}

// of returns the ids of the nodes with these names, each once. Unknown names are omitted.
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
