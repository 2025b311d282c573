package proxy

import (
	"encoding/json"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// documents are the OpenRPC documents that were asked for: making one takes
// milliseconds, and they are the same until the configuration or the target's
// release changes.
type documents struct {
	mu   sync.Mutex
	made map[documentKey]json.RawMessage
}

// maxDocuments bounds what is kept of them, of a MiB each.
const maxDocuments = 16

func (d *documents) kept(key documentKey) (json.RawMessage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.made[key]
	return text, ok
}

func (d *documents) keep(key documentKey, text json.RawMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil || len(d.made) >= maxDocuments {
		d.made = map[documentKey]json.RawMessage{}
	}
	d.made[key] = text
}

type documentKey struct {
	user    string
	release rpcschema.Release
}
