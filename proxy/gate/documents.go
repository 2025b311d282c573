package gate

import (
	"encoding/json"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// documents caches OpenRPC documents. Creating a document takes milliseconds, and it remains valid
// until the configuration or the target's release changes.
type documents struct {
	mu   sync.Mutex
	text map[documentKey]json.RawMessage
}

// maxDocuments is the maximum number of cached documents, each of which occupies about 1 MiB.
const maxDocuments = 16

func (d *documents) get(key documentKey) (json.RawMessage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.text[key]
	return text, ok
}

func (d *documents) put(key documentKey, text json.RawMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.text == nil || len(d.text) >= maxDocuments {
		d.text = map[documentKey]json.RawMessage{}
	}
	d.text[key] = text
}

type documentKey struct {
	user    string
	release rpcschema.Release
}
