package gate

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/metrics"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Call is a JSON-RPC request, with the proxy's decision and the outcome. Each stage records its
// result in the Call, for the response and for the log.
type Call struct {
	In       *Exchange
	Observer target.Observer // observes the call's progress at SPDK

	started  time.Time
	asked    asked
	decided  decided
	answered answered
}

// asked contains what the client requested.
type asked struct {
	request      *jsonrpc.Request // nil if the request could not be decoded
	malformed    error            // why the request could not be decoded
	id           json.RawMessage  // as the client wrote it
	notification bool
	method       string         // as the client wrote it, until the method is found
	redacted     map[string]any // the parameters without secrets; set when the method is found
}

// decided contains the proxy's decision about the call, for the log.
type decided struct {
	decision     auditlog.Decision
	rule         string
	translations []rpcschema.Translation
	tenant       string   // the user's tenant
	hidden       int      // number of names in the call that the tenant cannot see
	raised       []string // parameters for which the proxy chose a safer value than the client
}

// answered contains the outcome of the call.
type answered struct {
	result json.RawMessage
	value  any // the result, if the method is a page
	err    error
	answer Answer
}

func newCall(x *Exchange, e jsonrpc.Element) *Call {
	c := &Call{In: x, started: x.Arrived, asked: asked{request: e.Request, malformed: e.Err}}
	c.decided.decision = auditlog.Undecided
	if x.Sender.Unauthenticated {
		c.decided.decision = auditlog.Unauthenticated
	}
	if e.Request != nil { // the request may be known even if e.Err is set
		c.asked.id, c.asked.method = e.Request.ID, e.Request.Method
		c.asked.notification = e.Err == nil && e.Request.Notification() && !x.LikeSPDK
	}
	return c
}

// ID returns the id that the client gave to the call, or nil if there is none.
func (c *Call) ID() json.RawMessage { return c.asked.id }

// Notification reports whether the client expects no response.
func (c *Call) Notification() bool { return c.asked.notification }

// Answer returns how the call ended.
func (c *Call) Answer() Answer { return c.answered.answer }

// Err returns the error with which the call ended.
func (c *Call) Err() error { return c.answered.err }

// Result returns the result of a successful call.
func (c *Call) Result() json.RawMessage { return c.answered.result }

// Value returns the value of a page whose call succeeded.
func (c *Call) Value() any { return c.answered.value }

// NoteParams records the parameters of a call of a page, for the log.
func (c *Call) NoteParams(redacted map[string]any) { c.asked.redacted = redacted }

// unlogged reports whether a call that has ended is omitted from both the log and the metrics.
func (c *Call) unlogged(own *Own) bool {
	end := c.answered.answer.Outcome
	return c.In.Page && own != nil && own.Unlogged && (end == metrics.OK || end == metrics.Unauthenticated)
}

func (c *Call) noteMethod(name string, redacted map[string]any) {
	c.asked.method, c.asked.redacted = name, redacted
}

func (c *Call) noteDecision(d policy.Decision) {
	c.decided.rule = d.Rule
	switch {
	case d.Learned:
		c.decided.decision = auditlog.Learned
	case d.Allowed:
		c.decided.decision = auditlog.Allowed
	case d.Rule != policy.Open: // a call whose Rule is Open has not been decided yet
		c.decided.decision = auditlog.Denied
	}
}

func (c *Call) noteAdmission(scope *tenancy.Scope, grant *tenancy.Grant, err error) {
	if scope == nil {
		return
	}
	c.decided.tenant = scope.Name
	var refused *tenancy.Refusal
	var exceeded *tenancy.QuotaError
	switch {
	case err == nil && grant != nil:
		c.decided.hidden, c.decided.raised = grant.Hidden(), grant.Raised()
	case errors.As(err, &refused):
		c.decided.decision, c.decided.rule = auditlog.Denied, "tenant "+scope.Name
	case errors.As(err, &exceeded):
		c.decided.decision, c.decided.rule = auditlog.Denied, "tenant "+scope.Name+": quota of "+exceeded.What
	}
}

func (c *Call) noteAnswer(value any, err error) {
	if errors.Is(err, decide.ErrDenied) {
		c.decided.decision = auditlog.Denied // even if the proxy's own method has refused the call
	}
	result, _ := value.(json.RawMessage)
	c.answered = answered{result, value, err, AnswerTo(err)}
	c.In.resultBytes += len(result)
	if c.asked.notification && c.answered.answer.Status == http.StatusOK {
		// the response to a notification contains neither SPDK's result nor its error
		c.answered.answer.Status = http.StatusNoContent
	}
}
