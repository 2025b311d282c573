package proxy

import (
	"log/slog"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// oldClients remembers which translations have been told of, so that an
// administrator learns of each user's old clients once, and not with every call.
// It outlives reloads.
type oldClients struct {
	log *slog.Logger

	mu   sync.Mutex
	told map[oldClient]bool
}

type oldClient struct{ user, method, from, to string }

// oldClientsKept bounds what is remembered; from there on it is told anew.
const oldClientsKept = 4096

// note logs translations that were not noted before.
func (o *oldClients) note(user, method string, done []rpcschema.Translation) {
	for _, t := range done {
		if o.isNew(oldClient{user, method, t.From, t.To}) {
			o.log.Info("translated for an old client, seen first", "user", auditlog.ClipName(user), "method", method, "from", t.From, "to", t.To)
		}
	}
}

func (o *oldClients) isNew(c oldClient) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told[c] {
		return false
	}
	if o.told == nil || len(o.told) >= oldClientsKept {
		o.told = map[oldClient]bool{}
	}
	o.told[c] = true
	return true
}
