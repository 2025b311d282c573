package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
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
	s.serveGet(w, r, discoverMethod, func(document json.RawMessage) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document)
	})
}

// serveGet answers a GET as the call that it stands for, within the same limits. It
// writes a result by write, and an error as that of a call.
func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, method string, write func(result json.RawMessage)) {
	x := newExchange(r)
	w.Header().Set("X-Request-Id", x.id)
	now := s.settings.Load()
	x.decoded([]jsonrpc.Element{{Request: &jsonrpc.Request{Method: method}}}, false, s.receiveGet(now, x, w, r))
	defer func() { s.giveHeld(x) }()
	if x.entered {
		defer s.calls.leave()
	}
	c := x.calls[0]
	c.notification = false
	c.end(s.perform(r.Context(), now, c))
	x.held = s.held.less(x.user, x.held, len(c.result))
	s.audit(c)
	s.boundLeftover(w, x)
	if s.calls.isDraining() {
		w.Header().Set("Connection", "close") // the next call is for the next process
	}
	if c.err != nil {
		x.reply(w)
		return
	}
	write(c.result)
}

// longestOwn is how long an answer of the proxy's own may become. It counts as the
// user's memory before the answer is made.
const longestOwn = 1 << 20

// receiveGet is receive for a request whose method is known and whose body is not
// wanted. A user who may have no more memory gets no answer.
func (s *Server) receiveGet(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) (err error) {
	defer s.recoverFrom(x, &err)
	if err := s.enter(now, x, w, r); err != nil {
		return err
	}
	x.held, err = s.held.take(x.user, longestOwn)
	return err
}

// describe answers rpc.discover, which everybody may call who is known.
func (s *Server) describe(ctx context.Context, now *settings, c *call) (json.RawMessage, error) {
	c.method, c.decision = discoverMethod, auditlog.Allowed
	give, err := s.target.Turn(ctx, c.user)
	if err != nil {
		return nil, err
	}
	defer give()
	conn, err := s.target.Connect(ctx, c.user)
	if err != nil {
		return nil, err
	}
	return s.discover(now, c.user, conn.Release())
}
