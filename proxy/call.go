package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A call gathers what becomes known of one request on its way: for its answer
// and for the log. Each stage's result is noted by one method.
type call struct {
	id      string // X-Request-Id
	started time.Time
	source  netip.AddrPort

	user         string
	rpcID        json.RawMessage // as the client spelt it
	notification bool
	method       string
	params       map[string]any // redacted
	bodyRead     bool
	bodyBytes    int
	decision     string
	rule         string
	translations []rpcschema.Translation
	tenant       string // whose user it is
	hidden       int    // names in the call that are not theirs

	// How it ended.
	result json.RawMessage
	err    error
	answer answer
}

// What the log says of the decision on a call.
const (
	undecided       = "none" // it did not get so far
	unauthenticated = "unauthenticated"
	allowed         = "allow"
	denied          = "deny"
)

func newCall(r *http.Request) *call {
	source, _ := netip.ParseAddrPort(r.RemoteAddr) // of a listener's own making
	return &call{
		id:       newID(),
		started:  time.Now(),
		source:   source,
		decision: undecided,
	}
}

// newID names a call in the log; it guards nothing.
func newID() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], rand.Uint64())
	return hex.EncodeToString(b[:])
}

func (c *call) authenticated(user string, err error) {
	c.user = user
	if err != nil {
		c.decision = unauthenticated
	}
}

func (c *call) decoded(request *jsonrpc.Request, bodyBytes int) {
	c.bodyBytes = bodyBytes
	if request != nil { // even beside an error
		c.rpcID, c.notification, c.method = request.ID, request.Notification(), request.Method
	}
}

func (c *call) found(method *rpcschema.Method, redacted map[string]any) {
	c.method, c.params = method.Name, redacted
}

func (c *call) decided(d policy.Decision) {
	c.decision, c.rule = denied, d.Rule
	if d.Allowed {
		c.decision = allowed
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
		c.hidden = grant.Hidden()
	case errors.As(err, &refused):
		c.decision, c.rule = denied, "tenant "+scope.Name
	case errors.As(err, &exceeded):
		c.decision, c.rule = denied, "tenant "+scope.Name+": quota of "+exceeded.What
	}
}

func (c *call) translated(list []rpcschema.Translation) { c.translations = list }

func (c *call) end(result json.RawMessage, err error) {
	c.result, c.err, c.answer = result, err, answerTo(err)
	if c.notification && c.answer.status == http.StatusOK {
		c.answer.status = http.StatusNoContent // SPDK's answer, good or bad, is not wanted
	}
}
