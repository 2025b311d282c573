package proxy

import (
	"log/slog"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// oldClients remembers which translations have been logged, so that an
// administrator learns of each user's old clients once, and not with every call.
// It outlives reloads.
type oldClients struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[oldClient]bool
}

type oldClient struct{ user, method, from, to string }

// oldClientsKept bounds what is remembered; from there on it is logged anew.
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
	if o.logged[c] {
		return false
	}
	if o.logged == nil || len(o.logged) >= oldClientsKept {
		o.logged = map[oldClient]bool{}
	}
	o.logged[c] = true
	return true
}
