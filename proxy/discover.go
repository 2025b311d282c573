package proxy

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// discoverMethod is OpenRPC's method that describes all methods. The proxy answers it, not
// the target.
const discoverMethod = "rpc.discover"

// discover returns the OpenRPC document of the methods that user may call, as the target's
// release has them.
func (s *Server) discover(now *settings, user string, release rpcschema.Release) (json.RawMessage, error) {
	key := documentKey{user, release}
	if text, ok := now.documents.get(key); ok {
		return text, nil
	}
	text, err := s.schema.Export(release, func(m *rpcschema.Method) bool {
		return s.offers(m) && !now.policy.Decide(user, m.Name).Refused() && now.tenancy.Of(user).MayCall(m.Name)
	})
	if err != nil {
		return nil, err
	}
	now.documents.put(key, text)
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

// answerDiscover answers rpc.discover, which every authenticated user may call.
func (s *Server) answerDiscover(ctx context.Context, now *settings, c *call) (json.RawMessage, error) {
	c.asked.method, c.decided.decision = discoverMethod, auditlog.Allowed
	give, err := s.target.AcquireSlot(ctx, c.in.sender.user)
	if err != nil {
		return nil, err
	}
	defer give()
	conn, err := s.target.Connect(ctx, c.in.sender.user)
	if err != nil {
		return nil, err
	}
	return s.discover(now, c.in.sender.user, conn.Release())
}
