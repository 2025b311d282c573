package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/targetmetrics"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A call is one JSON-RPC request: what was asked, what was decided, and what was answered.
// One method for each stage notes its result, for the answer and the log.
type call struct {
	in      *exchange
	started time.Time

	asked    asked
	decided  decided
	answered answered

	observer target.Observer     // of the call at SPDK
	text     *targetmetrics.Text // the result of targetMetricsMethod
}

// asked is what the client asked for.
type asked struct {
	request      *jsonrpc.Request // nil: it could not be decoded
	malformed    error            // why not
	id           json.RawMessage  // as the client wrote it
	notification bool
	method       string         // the client's name for it, until the method is found
	redacted     map[string]any // the parameters without secrets, once the method is found
}

// decided is what the proxy decided on the call, for the log.
type decided struct {
	decision     auditlog.Decision
	rule         string
	translations []rpcschema.Translation
	tenant       string   // that the user belongs to
	hidden       int      // names in the call that are not the tenant's
	raised       []string // parameters that were changed to a safer value than the client's
}

// answered is how the call ended.
type answered struct {
	result json.RawMessage
	err    error
	answer answer
}

func newCall(x *exchange, e jsonrpc.Element) *call {
	c := &call{in: x, started: x.arrived, asked: asked{request: e.Request, malformed: e.Err}}
	c.decided.decision = auditlog.Undecided
	if x.sender.unauthenticated {
		c.decided.decision = auditlog.Unauthenticated
	}
	if e.Request != nil { // it may be known although e.Err is set
		c.asked.id, c.asked.method = e.Request.ID, e.Request.Method
		c.asked.notification = e.Err == nil && e.Request.Notification() && !x.local // see localText
	}
	return c
}

func (c *call) noteMethod(method *rpcschema.Method, redacted map[string]any) {
	c.asked.method, c.asked.redacted = method.Name, redacted
}

func (c *call) noteDecision(d policy.Decision) {
	c.decided.rule = d.Rule
	switch {
	case d.Learned:
		c.decided.decision = auditlog.Learned
	case d.Allowed:
		c.decided.decision = auditlog.Allowed
	case d.Rule != policy.Open: // Open: not decided yet
		c.decided.decision = auditlog.Denied
	}
}

func (c *call) noteTranslations(list []rpcschema.Translation) { c.decided.translations = list }

func (c *call) noteAdmission(scope *tenancy.Scope, grant *tenancy.Grant, err error) {
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

func (c *call) noteAnswer(result json.RawMessage, err error) {
	c.answered = answered{result, err, answerTo(err)}
	c.in.resultBytes += len(result)
	if c.asked.notification && c.answered.answer.status == http.StatusOK {
		c.answered.answer.status = http.StatusNoContent // a notification gets neither SPDK's result nor its error
	}
}
