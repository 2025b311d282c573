package gate

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An Arrival contains the parts of a request that depend on the endpoint.
type Arrival struct {
	Conn net.Conn // may be nil
	// Identify authenticates the user who sent the request, and records the user in the Exchange.
	Identify func(*Settings, *Exchange) error
	// CheckOrigin refuses a request that a browser sent on behalf of another site's page. It is nil
	// if browsers cannot send the request.
	CheckOrigin func(*Exchange) error
}

// Enter takes a request through the stages that are common to its calls. They check, in this order,
// where the request comes from, who sent it, whether another site's page caused it, and whether the
// proxy is stopping. An unauthenticated client learns nothing. The caller must call Leave even if
// Enter returns an error.
func (g *Gate) Enter(current *Settings, x *Exchange, a Arrival) (err error) {
	defer g.recoverFrom(x, &err)
	if x.NoSource != nil {
		x.Sender.Unauthenticated = true
		return x.NoSource
	}
	if err := a.Identify(current, x); err != nil {
		return err
	}
	if !g.Clients.Authenticated(a.Conn) {
		return ErrGone
	}
	if a.CheckOrigin != nil {
		if err := a.CheckOrigin(x); err != nil {
			return err
		}
	}
	if err := g.inFlight.enter(a.Conn); err != nil {
		return err
	}
	x.entered = true
	return nil
}

// Perform takes the calls of a request through the remaining stages, one after another. It must be
// called even if Enter has refused the request. Each call is logged before the client gets a
// response.
func (g *Gate) Perform(ctx context.Context, current *Settings, x *Exchange) {
	for i, c := range x.Calls {
		if i > 0 {
			c.started = time.Now()
		}
		value, err := g.perform(ctx, current, c)
		g.end(c, value, err)
	}
}

// Leave ends a request. It may be called twice.
func (g *Gate) Leave(x *Exchange) {
	g.memory.Release(x.Sender.User, x.reserved)
	x.reserved = 0
	if x.resultBytes > 0 {
		g.Target.MemoryReleased()
	}
	if x.entered {
		x.entered = false
		g.inFlight.leave()
	}
}

// end records how a call ended, counts its result against the user's memory limit, and writes its
// log entry.
func (g *Gate) end(c *Call, value any, err error) {
	c.noteAnswer(value, err)
	c.In.reserved += g.memory.Add(c.In.Sender.User, len(c.answered.result))
	if !c.unlogged(g.own[c.asked.method]) {
		g.audit(c)
	}
}

// perform takes a call through the stages, and then executes it. The stages check, in this order,
// the user's rate limit, the method, the user's permission to call it, the parameters, the tenant's
// ownership of the objects, and whether the method is enabled. An unauthorized caller learns only
// that the call was refused.
func (g *Gate) perform(ctx context.Context, current *Settings, c *Call) (value any, err error) {
	defer g.recoverFrom(c.In, &err)
	if c.asked.malformed != nil {
		return nil, c.asked.malformed
	}
	if err := g.checkBatchMayContinue(ctx, current, c); err != nil {
		return nil, err
	}
	user := c.In.Sender.User
	if err := g.rates.wait(ctx, user); err != nil {
		return nil, err
	}
	own := g.ownOf(c)
	decided, err := g.authorize(current, c, own)
	if err != nil {
		return nil, err
	}

	scope := current.Tenancy.Of(user)
	conn, err := g.connect(ctx, own, user, scope)
	if err != nil {
		c.noteAdmission(scope, nil, err)
		return nil, err
	}
	if err := g.accept(current, c, own, decided, releaseOf(conn)); err != nil {
		return nil, err
	}
	command := current.command(c, conn, decided, scope)
	command.Reserve = func(bytes int) (release func(), err error) {
		n, err := g.ReserveFor(user, bytes)
		return func() { g.ReleaseFor(user, n) }, err
	}
	grant, err := g.admit(ctx, current, own, &command)
	c.noteAdmission(scope, grant, err)
	if err != nil {
		return nil, err
	}
	defer grant.Close()

	value, err = g.serve(ctx, current, c, own, command)
	if own.Users == ByRole && !command.Method.Mutates && errors.Is(err, spdkrpc.OutcomeUnknown) {
		err = &unansweredReadError{err}
	}
	current.Tenancy.Executed(command.Method)
	return g.answer(ctx, c, decided, scope, grant, command, value, err)
}

// spdksOwn describes SPDK's own methods.
var spdksOwn = &Own{}

// ownOf returns the description of a call's method.
func (g *Gate) ownOf(c *Call) *Own {
	own := g.own[c.asked.request.Method]
	if own == nil || own.Endpoint != "" && !c.In.Page {
		return spdksOwn
	}
	return own
}

// authorize looks up the method, and decides whether the user may call it.
func (g *Gate) authorize(current *Settings, c *Call, own *Own) (*decide.Call, error) {
	user, request := c.In.Sender.User, c.asked.request
	if own.Users != ByRole {
		c.asked.method, c.decided.decision = own.Name, auditlog.Allowed
		if own.Users == Administrators && !current.Administrator(user) {
			c.decided.decision, c.decided.rule = auditlog.Denied, policy.NoRule
			return nil, decide.ErrDenied
		}
		return &decide.Call{Method: &rpcschema.Method{Name: own.Name}}, nil
	}
	decided, err := current.decide.Method(user, request.Method)
	if decided != nil {
		c.noteMethod(decided.Method.Name, g.Schema.Redact(decided.Method.Name, request.Params))
		c.noteDecision(decided.Decision)
	}
	return decided, err
}

// connect connects to the target if the call needs it. The target's release determines which
// parameters are valid.
func (g *Gate) connect(ctx context.Context, own *Own, user string, scope *tenancy.Scope) (*target.Conn, error) {
	if own.Target == Never || own.Target == ForTenants && scope == nil {
		return nil, nil
	}
	return g.Target.Connect(ctx, user)
}

func releaseOf(conn *target.Conn) rpcschema.Release {
	if conn == nil {
		return rpcschema.Release{}
	}
	return conn.Release()
}

// accept validates the parameters, and decides whether the user may call the method with them.
func (g *Gate) accept(current *Settings, c *Call, own *Own, decided *decide.Call, release rpcschema.Release) error {
	if own.Users != ByRole {
		return nil // only the endpoint itself produces these parameters
	}
	err := decided.Accept(c.asked.request.Params, release)
	c.decided.translations = decided.Translations
	g.oldClients.note(c.In.Sender.User, decided.Method.Name, decided.Translations)
	c.noteDecision(decided.Decision)
	return err
}

// admit decides whether the objects named in a call belong to the tenant, and replaces the
// parameters with those to be sent.
func (g *Gate) admit(ctx context.Context, current *Settings, own *Own, command *execute.Command) (*tenancy.Grant, error) {
	scope := command.Tenant
	if scope != nil && own.Tenants != Unscoped && !own.Unexamined && command.Conn != nil {
		if err := checkExamination(ctx, current, scope, command.Conn); err != nil {
			return nil, err
		}
	}
	if own.Tenants != Scoped {
		scope = nil
	}
	ask := command.Ask
	if command.Conn == nil {
		ask = func(context.Context, string, map[string]any) (json.RawMessage, error) {
			return nil, &target.DownError{Socket: g.Execute.Config.Target.Socket, Err: g.Target.State().Err}
		}
	}
	grant, err := scope.Admit(ctx, command.Method, command.Params, ask)
	if err != nil {
		return nil, err
	}
	command.Params = grant.Params
	return grant, nil
}

// serve executes a call, either in the proxy itself or by calling SPDK.
func (g *Gate) serve(ctx context.Context, current *Settings, c *Call, own *Own, command execute.Command) (any, error) {
	if own == spdksOwn {
		return g.Execute.Execute(ctx, command)
	}
	if err := own.enabled(); err != nil {
		return nil, err
	}
	if own.Slot {
		release, err := g.Target.AcquireSlot(ctx, command.User)
		if err != nil {
			return nil, err
		}
		defer release()
	}
	return own.Serve(ctx, &Request{command, c, current})
}

// answer returns a call's result, reduced to the parts that the user may see.
func (g *Gate) answer(ctx context.Context, c *Call, decided *decide.Call, scope *tenancy.Scope, grant *tenancy.Grant, command execute.Command, value any, err error) (any, error) {
	result, isJSON := value.(json.RawMessage)
	if !isJSON && err == nil && !c.In.Page {
		if result, err = jsonrpc.Marshal(value); err == nil {
			value, isJSON = result, true
		}
	}
	if !isJSON && err == nil {
		return value, nil
	}
	method, user := command.Method.Name, c.In.Sender.User
	// the result, and a copy with only the parts that the user may see
	if scope != nil || decided.Decision.Redact {
		n := g.memory.Add(user, 2*len(result))
		defer g.memory.Release(user, n)
	}
	result, err = grant.Answer(ctx, result, err)
	if err == nil && scope != nil {
		result = withDiscovery(method, decided.Params, result)
	}
	if err == nil && decided.Decision.Redact {
		result, err = g.Schema.RedactResult(method, result)
	}
	return result, err
}

// checkBatchMayContinue returns an error if the next call of a batch must not be made: the proxy is
// stopping, the client has disconnected, the user may have lost permissions, or a limit has been
// reached. The permissions at the beginning do not suffice, because a batch can take minutes.
func (g *Gate) checkBatchMayContinue(ctx context.Context, current *Settings, c *Call) error {
	x := c.In
	switch {
	case c == x.Calls[0]:
		return nil
	case ctx.Err() != nil:
		return ErrGone
	case g.inFlight.isDraining():
		return ErrDraining
	case g.Settings() != current:
		return errReloaded
	case x.SessionEnded != nil && x.SessionEnded():
		return ErrSessionEnded
	case x.resultBytes > maxBatchResults:
		return errBatchResults
	case g.memory.Exhausted(x.Sender.User):
		return ErrMemory
	}
	return nil
}

// maxBatchResults is the maximum total size of a batch's results, in bytes.
const maxBatchResults = 64 << 20

var (
	errBatchResults = errors.New("the results of the batch are too large")
	errReloaded     = errors.New("the configuration was reloaded during the batch")
)
