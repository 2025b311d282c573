package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// serveRPC answers a request, of one call or of a batch. Each call is in the log before the
// client gets an answer.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request) {
	x := newExchange(r, s.balancers)
	w.Header().Set("X-Request-Id", x.id)
	now := s.settings.Load()

	x.noteCalls(s.receive(now, x, w, r))
	defer func() { s.releaseMemory(x) }()
	if x.entered {
		defer s.inFlight.leave()
	}
	s.limitUnreadBody(w, x, now.read)
	if x.entered && asksForConcurrency(w, r) && x.batch {
		x.concurrent = true
		s.serveConcurrently(now, x, w, r)
		return
	}
	s.performInTurn(r.Context(), now, x)
	if s.inFlight.isDraining() {
		w.Header().Set("Connection", "close") // the next call is for the next process
	}
	x.reply(w)
}

// performInTurn performs the calls of an exchange one after the other.
func (s *Server) performInTurn(ctx context.Context, now *settings, x *exchange) {
	for i, c := range x.calls {
		if i > 0 {
			c.started = time.Now()
		}
		c.noteAnswer(s.perform(ctx, now, c))
		x.reserved += s.memory.Add(x.sender.user, len(c.answered.result))
		s.audit(c)
	}
}

// receive is the first part, which the calls of a batch share: it authenticates the sender
// and decodes the body strictly. An unauthenticated sender learns nothing.
func (s *Server) receive(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) (elements []jsonrpc.Element, batch bool, err error) {
	defer s.recoverFrom(x, &err)
	if err := s.enter(now, x, w, r); err != nil {
		return nil, false, err
	}
	if x.reserved, err = s.memory.Reserve(x.sender.user, decodedSize*declaredLength(r, now.maxBody)); err != nil {
		return nil, false, err
	}
	body, err := readBody(w, r, now.maxBody, now.read)
	if err != nil {
		return nil, false, err
	}
	x.bodyRead = true
	x.reserved = s.memory.Shrink(x.sender.user, x.reserved, decodedSize*len(body))
	return jsonrpc.DecodeMessage(body, jsonrpc.LimitsV2605)
}

// enter is the part that the requests to all paths share, except health and readiness: it
// authenticates the sender, and refuses requests that other sites caused or that came too
// late.
func (s *Server) enter(now *settings, x *exchange, w http.ResponseWriter, r *http.Request) error {
	if err := s.authenticate(now, x, r); err != nil {
		s.skipBody(w)
		return err
	}
	if !s.clients.Authenticated(connOf(r)) {
		return errGone
	}
	if err := checkOrigin(x, r); err != nil {
		return err
	}
	if x.sender.session != nil && !sentInBackground(r) {
		s.sessions.Use(*x.sender.session)
	}
	if err := s.inFlight.enter(connOf(r)); err != nil {
		return err
	}
	x.entered = true
	return nil
}

// perform takes one call through the remaining stages, in this order: does the user make too
// many calls, is the method known, is it allowed, are the parameters valid, are the objects the
// tenant's own; then it calls SPDK. An unauthorized caller learns only that the call was refused.
// The calls of a batch are performed one after the other, or all at once if the client asks for it,
// each like a single call.
func (s *Server) perform(ctx context.Context, now *settings, c *call) (result json.RawMessage, err error) {
	defer s.recoverFrom(c.in, &err)
	if c.asked.malformed != nil {
		return nil, c.asked.malformed
	}
	if err := s.checkBatchMayContinue(ctx, c); err != nil {
		return nil, err
	}
	user, request := c.in.sender.user, c.asked.request
	if err := s.callRates.wait(ctx, user); err != nil {
		return nil, err
	}
	if request.Method == discoverMethod {
		return s.answerDiscover(ctx, now, c)
	}
	method, err := s.schema.Find(request.Method, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c.noteMethod(method, s.schema.Redact(method.Name, request.Params))

	decision := now.policy.Decide(user, method.Name)
	c.noteDecision(decision)
	if decision.Refused() {
		return nil, errDenied
	}
	switch method.Name { // these are answered even if the target is unreachable
	case metricsMethod:
		return s.answerMetrics(ctx, now, c, method, decision)
	case targetMetricsMethod:
		return s.answerTargetMetrics(ctx, now, c, method, decision)
	case statusMethod:
		return s.answerStatus(ctx, now, c, method, decision)
	}

	conn, err := s.target.Connect(ctx, user)
	if err != nil {
		return nil, err
	}
	params, translations, err := method.Fit(request.Method, request.Params, conn.Release(), now.translate)
	c.noteTranslations(translations)
	s.oldClients.note(user, method.Name, translations)
	if err != nil {
		return nil, err
	}
	if decision, err = s.decideParams(c, decision, method, params, conn.Release()); err != nil {
		return nil, err
	}

	scope := now.tenancy.Of(user)
	if err := s.checkExamination(ctx, now, scope, conn, method.Name); err != nil {
		c.noteAdmission(scope, nil, err)
		return nil, err
	}
	grant, err := scope.Admit(ctx, method, params, rawCaller(conn, user, now))
	c.noteAdmission(scope, grant, err)
	if err != nil {
		return nil, err
	}
	defer grant.Close()
	result, err = s.execute(ctx, command{now, conn, user, method, grant.Params, c.observer})
	now.tenancy.Executed(method)
	if scope != nil || decision.Redact { // the result, and a copy without what the user may not see
		n := s.memory.Add(user, 2*len(result))
		defer s.memory.Release(user, n)
	}
	result, err = grant.Answer(ctx, result, err)
	if err == nil && scope != nil {
		result = withDiscovery(method.Name, params, result)
	}
	if err == nil && decision.Redact {
		return s.schema.RedactResult(method.Name, result)
	}
	return result, err
}

// decideParams takes a call whose method policy has not refused through two stages: it
// validates the parameters, and asks policy whether the call is allowed with them.
func (s *Server) decideParams(c *call, d policy.Decision, method *rpcschema.Method, params map[string]any, release rpcschema.Release) (policy.Decision, error) {
	if err := s.schema.ValidateParams(method.Name, params, release); err != nil {
		return d, err
	}
	d = d.WithParams(params)
	c.noteDecision(d)
	if !d.Allowed {
		return d, errDeniedParams
	}
	return d, nil
}

// checkBatchMayContinue returns an error if the next call of a batch must not be made: the
// proxy is stopping, the client has disconnected, or a limit is reached. The client would get
// the same answer if it sent each call in a separate request.
func (s *Server) checkBatchMayContinue(ctx context.Context, c *call) error {
	x := c.in
	switch {
	case c == x.calls[0], x.concurrent:
		return nil
	case ctx.Err() != nil:
		return errGone
	case s.inFlight.isDraining():
		return errDraining
	case x.resultBytes > maxBatchResults:
		return errBatchResults
	case s.memory.Exhausted(x.sender.user):
		return errMemory
	}
	return nil
}

// releaseMemory releases the memory that an exchange reserved, and starts calls that waited
// for it.
func (s *Server) releaseMemory(x *exchange) {
	s.memory.Release(x.sender.user, x.reserved)
	if x.resultBytes > 0 {
		s.target.MemoryReleased()
	}
}

// rawCaller makes the proxy's own calls that a user's call needs, on the same connection and
// in the user's name.
func rawCaller(conn *target.Conn, user string, now *settings) func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	return func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		return conn.Call(ctx, user, method, params, now.timeoutOf(method))
	}
}
