package proxy

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// serveRPC takes one request into the log and to its answer, in this order:
// nobody sees an answer that is not in the log.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) {
	c := newCall(r)
	w.Header().Set("X-Request-Id", c.id)
	defer s.recoverFrom(c, w)
	result, err := s.perform(c, w, r)
	if !c.bodyRead {
		s.boundLeftover(w)
	}
	c.end(result, err)
	s.audit(c)
	c.reply(w)
}

// perform is the whole way of a call, in its order: who, what, known, allowed,
// well formed, theirs, and then what SPDK says. Nothing is told to whoever is nobody,
// and nothing but no to whoever may not.
func (s *Server) perform(c *call, w http.ResponseWriter, r *http.Request) (json.RawMessage, error) {
	now := s.settings.Load()

	user, err := now.authn.Authenticate(r.Context(), r.Header.Get("Authorization"), c.source.Addr())
	c.authenticated(user, err)
	if err != nil {
		return nil, err
	}
	if err := s.calls.enter(connOf(r)); err != nil {
		return nil, err
	}
	defer s.calls.leave()

	body, err := readBody(w, r, now.maxBody, now.read)
	if err != nil {
		return nil, err
	}
	c.bodyRead = true
	request, err := jsonrpc.DecodeRequest(body, jsonrpc.LimitsV2605)
	c.decoded(request, len(body))
	if err != nil {
		return nil, err
	}
	if request.Method == discoverMethod {
		return s.describe(r.Context(), now, c)
	}
	method, err := s.schema.Find(request.Method, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c.found(method, s.schema.Redact(method.Name, request.Params))

	decision := now.policy.Decide(user, method.Name)
	c.decided(decision)
	if !decision.Allowed {
		return nil, errDenied
	}

	conn, err := s.target.Connect(r.Context())
	if err != nil {
		return nil, err
	}
	params, translations, err := method.Translate(request.Params, conn.Release())
	c.translated(translations)
	if err != nil {
		return nil, err
	}
	if err := s.schema.ValidateParams(method.Name, params, conn.Release()); err != nil {
		return nil, err
	}

	scope := now.tenancy.Of(user)
	grant, err := scope.Admit(r.Context(), method, params, asking(conn, now))
	c.admitted(scope, grant, err)
	if err != nil {
		return nil, err
	}
	defer grant.Close()
	result, err := conn.Call(r.Context(), method.Name, grant.Params, now.timeoutOf(method.Name))
	return grant.Answer(r.Context(), result, err)
}

// asking makes calls of the proxy's own on the connection that a client's call
// goes out on.
func asking(conn *target.Conn, now *settings) tenancy.Ask {
	return func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		return conn.Call(ctx, method, params, now.timeoutOf(method))
	}
}
