package gate

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// oldClients records which translations have been logged, so that each is logged once per user
// rather than for every call. The records survive reloads.
type oldClients struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[oldClient]bool
}

type oldClient struct{ user, method, from, to string }

// maxOldClients is the maximum number of recorded translations. When it is reached, all records are
// dropped, so that each translation is logged once more.
const maxOldClients = 4096

// note logs the translations that have not been logged for this user and method before.
func (o *oldClients) note(user, method string, done []rpcschema.Translation) {
	for _, t := range done {
		if o.isNew(oldClient{user, method, t.From, t.To}) {
			o.log.Info("call of an old client translated", "user", auditlog.ClipName(user), "method", method, "from", t.From, "to", t.To)
		}
	}
}

func (o *oldClients) isNew(c oldClient) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logged[c] {
		return false
	}
	if o.logged == nil || len(o.logged) >= maxOldClients {
		o.logged = map[oldClient]bool{}
	}
	o.logged[c] = true
	return true
}

// discovery describes the discovery subsystem, omitting members that other tenants could have
// changed.
const discovery = `{"nqn":"nqn.2014-08.org.nvmexpress.discovery","subtype":"Discovery","listen_addresses":[],"allow_any_host":true,"hosts":[]}`

// withDiscovery inserts the discovery subsystem before a tenant's own subsystems in a list of all
// subsystems, because OpenStack Cinder always skips the first subsystem. The inserted text does not
// depend on SPDK's response.
func withDiscovery(method string, params map[string]any, result json.RawMessage) json.RawMessage {
	rest, list := bytes.CutPrefix(result, []byte("["))
	if _, named := params["nqn"]; named || !list || method != "nvmf_get_subsystems" {
		return result
	}
	if rest = bytes.TrimSpace(rest); rest[0] == ']' {
		return json.RawMessage("[" + discovery + "]")
	}
	return slices.Concat(json.RawMessage("["+discovery+","), rest)
}
