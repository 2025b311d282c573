package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// serveRPC takes a request, of one call or of a batch, to its answer. Each call
// is in the log before anybody sees an answer.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) {
	x := newExchange(r)
	w.Header().Set("X-Request-Id", x.id)
	now := s.settings.Load()

	x.decoded(s.receive(now, x, w, r))
	defer func() { s.giveHeld(x) }()
	if x.entered {
		defer s.calls.leave()
	}
	s.boundLeftover(w, x)
	for i, c := range x.calls {
		if i > 0 {
			c.started = time.Now()
		}
		c.end(s.perform(r.Context(), now, c))
		x.held += s.held.keep(x.user, len(c.result))
		s.audit(c)
	}
	if s.calls.isDraining() {
		w.Header().Set("Connection", "close") // the next call is for the next process
	}
	x.reply(w)
}

// receive is the first part of the way, which calls in a batch share: who, and
// what, strictly? Nothing is told to whoever is nobody.
func (s *Server) receive(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) (elements []jsonrpc.Element, batch bool, err error) {
	defer s.recoverFrom(x, &err)
	if err := s.enter(now, x, w, r); err != nil {
		return nil, false, err
	}
	if x.held, err = s.held.take(x.user, decodedSize*announced(r, now.maxBody)); err != nil {
		return nil, false, err
	}
	body, err := readBody(w, r, now.maxBody, now.read)
	if err != nil {
		return nil, false, err
	}
	x.bodyRead, x.bodyBytes = true, len(body)
	x.held = s.held.less(x.user, x.held, decodedSize*len(body))
	return jsonrpc.DecodeMessage(body, jsonrpc.LimitsV2605)
}

// enter is the part of the way that all requests of users share, whatever their
// path: who, and may anything be begun?
func (s *Server) enter(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) error {
	who, err := now.authn.Authenticate(r.Context(), evidenceOf(r, x.source))
	x.authenticated(now.authn, who, err)
	if err != nil {
		s.endUnread(w)
		return err
	}
	if !s.clients.Authenticated(connOf(r)) {
		return errGone
	}
	if crossOrigin.Check(r) != nil {
		return errCrossOrigin
	}
	if err := s.calls.enter(connOf(r)); err != nil {
		return err
	}
	x.entered = true
	return nil
}

// perform is the rest of the way of one call, in its order: known, allowed,
// well formed, theirs, and then what SPDK says. Nothing but no is told to whoever
// may not. The calls of a batch come here one after the other, each as if alone.
func (s *Server) perform(ctx context.Context, now *settings, c *call) (result json.RawMessage, err error) {
	defer s.recoverFrom(c.exchange, &err)
	if c.malformed != nil {
		return nil, c.malformed
	}
	if err := s.goesOn(ctx, c.exchange, c); err != nil {
		return nil, err
	}
	if c.request.Method == discoverMethod {
		return s.describe(ctx, now, c)
	}
	method, err := s.schema.Find(c.request.Method, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c.found(method, s.schema.Redact(method.Name, c.request.Params))

	decision := now.policy.Decide(c.user, method.Name)
	c.decided(decision)
	if decision.Refused() {
		return nil, errDenied
	}
	if method.Name == metricsMethod { // whether there is a target or not
		return s.tellMetrics(ctx, now, c, method, decision)
	}
	if method.Name == statusMethod {
		return s.tellStatus(ctx, now, c, method, decision)
	}

	conn, err := s.target.Connect(ctx, c.user)
	if err != nil {
		return nil, err
	}
	params, translations, err := method.Fit(c.request.Method, c.request.Params, conn.Release(), now.translate)
	c.translated(translations)
	s.oldClients.seen(c.user, method.Name, translations)
	if err != nil {
		return nil, err
	}
	if err := s.schema.ValidateParams(method.Name, params, conn.Release()); err != nil {
		return nil, err
	}
	decision = decision.Given(params)
	c.decided(decision)
	if !decision.Allowed {
		return nil, errDeniedParams
	}

	scope := now.tenancy.Of(c.user)
	grant, err := scope.Admit(ctx, method, params, asking(conn, c.user, now))
	c.admitted(scope, grant, err)
	if err != nil {
		return nil, err
	}
	defer grant.Close()
	result, err = s.execute(ctx, now, conn, c.user, method, grant.Params)
	if scope != nil || decision.Redact { // the result, and a copy of it without what the user may not see
		n := s.held.keep(c.user, 2*len(result))
		defer s.held.give(c.user, n)
	}
	result, err = grant.Answer(ctx, result, err)
	if err == nil && decision.Redact {
		return s.schema.RedactResult(method.Name, result)
	}
	return result, err
}

// asking makes calls of the proxy's own for a user's call, on the connection that
// it goes out on.
func asking(conn *target.Conn, user string, now *settings) tenancy.Ask {
	return func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		return conn.Call(ctx, user, method, params, now.timeoutOf(method))
	}
}
