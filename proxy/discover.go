package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// discoverMethod is OpenRPC's own method: what is there to call? The proxy
// answers it by itself.
const discoverMethod = "rpc.discover"

// documents are the OpenRPC documents that were asked for: making one takes
// milliseconds, and they are the same until the configuration or the target's
// release changes.
type documents struct {
	mu   sync.Mutex
	made map[documentKey]json.RawMessage
}

// mostDocuments bounds what is kept of them, of a MiB each.
const mostDocuments = 16

func (d *documents) kept(key documentKey) (json.RawMessage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.made[key]
	return text, ok
}

func (d *documents) keep(key documentKey, text json.RawMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil || len(d.made) >= mostDocuments {
		d.made = map[documentKey]json.RawMessage{}
	}
	d.made[key] = text
}

type documentKey struct {
	user    string
	release rpcschema.Release
}

// discover describes what user may call, as the target's release has it.
func (s *Server) discover(now *settings, user string, release rpcschema.Release) (json.RawMessage, error) {
	key := documentKey{user, release}
	if text, ok := now.documents.kept(key); ok {
		return text, nil
	}
	text, err := s.schema.Export(release, func(m *rpcschema.Method) bool {
		return s.offers(m) && !now.policy.Decide(user, m.Name).Refused() && now.tenancy.Of(user).Might(m.Name)
	})
	if err != nil {
		return nil, err
	}
	now.documents.keep(key, text)
	return text, nil
}

// serveOpenRPC answers GET /openrpc.json with the same document, for tools that
// fetch one.
func (s *Server) serveOpenRPC(w http.ResponseWriter, r *http.Request) {
	c := s.asked(w, r, discoverMethod)
	if c.err != nil {
		c.exchange.reply(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(c.result)
}

// asked makes a GET the call that it stands for, up to its answer.
func (s *Server) asked(w http.ResponseWriter, r *http.Request, method string) *call {
	defer s.boundLeftover(w)
	x := newExchange(r)
	w.Header().Set("X-Request-Id", x.id)
	now := s.settings.Load()
	who, err := now.authn.Authenticate(r.Context(), evidenceOf(r, x.source))
	x.authenticated(now.authn, who, err)
	x.decoded([]jsonrpc.Element{{Request: &jsonrpc.Request{Method: method}}}, false, err)
	c := x.calls[0]
	c.notification = false
	c.end(s.perform(r.Context(), now, c))
	s.audit(c)
	return c
}

// describe answers rpc.discover, which everybody may call who is known.
func (s *Server) describe(ctx context.Context, now *settings, c *call) (json.RawMessage, error) {
	c.method, c.decision = discoverMethod, allowed
	conn, err := s.target.Connect(ctx, c.user)
	if err != nil {
		return nil, err
	}
	return s.discover(now, c.user, conn.Release())
}
