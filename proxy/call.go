package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A call gathers what becomes known of one JSON-RPC request on its way: for its
// answer and for the log. Each stage's result is noted by one method.
type call struct {
	*exchange
	started time.Time

	request      *jsonrpc.Request // nil: not one at all
	malformed    error            // what is wrong with it
	rpcID        json.RawMessage  // as the client spelt it
	notification bool
	method       string
	params       map[string]any // redacted
	decision     auditlog.Decision
	rule         string
	translations []rpcschema.Translation
	tenant       string   // whose user it is
	hidden       int      // names in the call that are not theirs
	raised       []string // parameters that got a safer value than the client's

	// How it ended.
	result json.RawMessage
	err    error
	answer answer
}

func newCall(x *exchange, e jsonrpc.Element) *call {
	c := &call{exchange: x, started: x.arrived, request: e.Request, malformed: e.Err, decision: x.decision}
	if e.Request != nil { // even beside an error
		c.rpcID, c.method = e.Request.ID, e.Request.Method
		c.notification = e.Err == nil && e.Request.Notification()
	}
	return c
}

func (c *call) found(method *rpcschema.Method, redacted map[string]any) {
	c.method, c.params = method.Name, redacted
}

func (c *call) decided(d policy.Decision) {
	c.rule = d.Rule
	switch {
	case d.Learned:
		c.decision = auditlog.Learned
	case d.Allowed:
		c.decision = auditlog.Allowed
	case d.Rule != policy.Open: // which is not decided yet
		c.decision = auditlog.Denied
	}
}

func (c *call) admitted(scope *tenancy.Scope, grant *tenancy.Grant, err error) {
	if scope == nil {
		return
	}
	c.tenant = scope.Name
	var refused *tenancy.Refusal
	var exceeded *tenancy.QuotaError
	switch {
	case err == nil:
		c.hidden, c.raised = grant.Hidden(), grant.Raised()
	case errors.As(err, &refused):
		c.decision, c.rule = auditlog.Denied, "tenant "+scope.Name
	case errors.As(err, &exceeded):
		c.decision, c.rule = auditlog.Denied, "tenant "+scope.Name+": quota of "+exceeded.What
	}
}

func (c *call) translated(list []rpcschema.Translation) { c.translations = list }

func (c *call) end(result json.RawMessage, err error) {
	c.result, c.err, c.answer = result, err, answerTo(err)
	c.answered += len(result)
	if c.notification && c.answer.status == http.StatusOK {
		c.answer.status = http.StatusNoContent // SPDK's answer, good or bad, is not wanted
	}
}
