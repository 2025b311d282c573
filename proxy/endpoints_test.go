package proxy

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// An endpoint is a way for requests to enter the proxy. To add an endpoint, add a row to
// endpoints().
type endpoint struct {
	name string
	// method is the only method that the endpoint serves, or "" if the endpoint accepts calls of
	// any method.
	method string
	// open is called before the stage prepares the test. It may be nil.
	open func(d *visitor)
	// send sends a request that the endpoint must refuse.
	send func(d *visitor, r request) response
	// exempt names the stages that cannot refuse a request at this endpoint, with reasons.
	exempt reasons
	// ruleless means that roles' rules do not apply to the endpoint's method.
	ruleless bool
	// local means that the OS user who runs this process must be mapped to a user of the proxy.
	local bool
}

// reasons maps the name of a stage to the reason why it does not apply to an endpoint.
type reasons map[string]string

// because merges several sets of reasons.
func because(all ...reasons) reasons {
	merged := reasons{}
	for _, each := range all {
		maps.Copy(merged, each)
	}
	return merged
}

// A stage refuses requests for one reason. The response, the audit entry and the metrics must be
// the same at all endpoints.
type stage struct {
	name    string
	hosts   bool                            // the target must be one that loads lvstores written by hosts
	config  func(*config.Config, *endpoint) // if nil, the caller may make all calls
	prepare func(d *visitor)                // may be nil
	request func(d *endpoint) request
	want    refusal
}

// A request is what a test sends to an endpoint.
type request struct {
	method, params string
	text           string   // if not empty, replaces the call
	header         []string // alternating names and values
	credentials    func(d *visitor) []string
	noCSRF         bool
}

// call returns the text of a JSON-RPC request.
func (r request) call() string {
	switch {
	case r.text != "":
		return r.text
	case r.params == "":
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, r.method)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, r.method, r.params)
}

// A response comes from an endpoint. Fields that do not apply to the endpoint are zero.
type response struct {
	status  int // HTTP status
	code    int // JSON-RPC error code
	message string
	http    bool   // whether the client received an HTTP response
	retry   string // the header Retry-After
	rule    string // set only for dry runs
}

// A refusal describes how a stage refuses a request at all endpoints.
type refusal struct {
	status, code int
	message      string
	retry        string
	audit        map[string]any // decision, rule, error and other members
	outcome      string
	denial       string // the rule in denials_total
	login        string // the reason in authentication_failures_total
	reaches      bool   // whether the target receives the call
}

// at returns r completed with the request's method and the target's socket.
func (r refusal) at(v *visitor, q request) *refusal {
	fill := strings.NewReplacer("METHOD", q.method, "SOCKET", v.target.Socket()).Replace
	r.message, r.audit = fill(r.message), maps.Clone(r.audit)
	r.audit["error"] = fill(r.audit["error"].(string))
	if v.endpoint.ruleless && r.audit["rule"] == admins {
		r.audit["rule"] = ""
	}
	return &r
}

// A visitor is an endpoint's client in one test.
type visitor struct {
	*bench
	endpoint *endpoint
	session  *browser
	program  *program
	stream   *streamClient
}

// These are the credentials of the user who sends requests to the endpoints.
const (
	caller = "caller"
	team   = "team-of-caller"
)

// inTeam makes the caller a user of a tenant.
func inTeam(c *config.Config, _ *endpoint) {
	for i := range c.Users {
		if c.Users[i].Name == caller {
			c.Users[i].Tenant = team
		}
	}
	c.Tenants = map[string]config.Tenant{team: {LVStores: []string{"lvs-team"}}}
}

func newVisitor(t *testing.T, s *stage, d *endpoint) *visitor {
	change := func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: caller, PasswordHash: hashes()[adminPassword], Roles: []string{policy.Admin}})
		if d.local {
			local(t, caller)(c)
		}
		if s.config != nil {
			s.config(c, d)
		}
	}
	v := &visitor{endpoint: d, bench: newBenchWith(t, spdktest.Options{Release: rpcschema.MustRelease("v26.05"), ExamineListed: !s.hosts}, change)}
	if d.open != nil {
		d.open(v)
	}
	if s.prepare != nil {
		s.prepare(v)
	}
	return v
}

// Each stage refuses requests with the same response, audit entry and metrics at every endpoint.
func TestEveryStageRefusesRequestsAtEveryEndpoint(t *testing.T) {
	for _, d := range endpoints() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range stages() {
				if reason, ok := d.exempt[s.name]; ok {
					assert.NotEmpty(t, reason, s.name)
					continue
				}
				t.Run(s.name, func(t *testing.T) { s.refuses(t, d) })
			}
		})
	}
}

// refuses checks that the stage refuses its request at an endpoint.
func (s *stage) refuses(t *testing.T, d *endpoint) {
	v := newVisitor(t, s, d)
	r := s.request(d)
	before, reached := v.counters(), len(v.reached())
	got := d.send(v, r)

	want := s.want.at(v, r)
	assert.Equal(t, want.message, got.message, "message")
	if got.status != 0 {
		assert.Equal(t, s.want.status, got.status, "status")
	}
	if got.http {
		assert.Equal(t, s.want.retry, got.retry, "Retry-After")
	}
	if got.code != 0 {
		assert.Equal(t, s.want.code, got.code, "code")
	}
	if d.isDryRun() {
		assert.Equal(t, want.entry()["rule"], got.rule, "rule")
		return
	}
	assert.Equal(t, s.want.reaches, len(v.reached()) > reached, "the target got the call")
	entries := v.refusedEntries()
	require.Len(t, entries, 1, "audit entries")
	if d.method != "" {
		assert.Equal(t, d.method, entries[0]["method"], "method in the audit entry")
	}
	assert.Equal(t, want.entry(), withoutEndpoint(entries[0]), "audit entry")
	assert.Equal(t, want.counters(), v.increased(before), "metrics")
}

// ofEndpoint lists the members of an audit entry that depend on the request or the endpoint.
var ofEndpoint = []string{"time", "msg", "request_id", "auth", "credential", "source", "method", "params", "resources", "batch", "latency_ms"}

// withoutEndpoint returns the members of an audit entry that do not depend on the endpoint.
func withoutEndpoint(entry map[string]any) map[string]any {
	rest := maps.Clone(entry)
	for _, key := range ofEndpoint {
		delete(rest, key)
	}
	return rest
}

// entry returns the expected audit entry of the refusal.
func (r *refusal) entry() map[string]any {
	e := map[string]any{"level": "WARN", "user": caller, "rule": "", "status": float64(r.status), "code": float64(r.code)}
	maps.Copy(e, r.audit)
	return e
}

// counters returns the counters that the refusal must increase.
func (r *refusal) counters() map[string]float64 {
	user, _ := r.entry()["user"].(string)
	list := map[string]float64{
		fmt.Sprintf("outcomes_total{outcome=%q}", r.outcome):            1,
		fmt.Sprintf("calls_total{outcome=%q,user=%q}", r.outcome, user): 1,
	}
	if r.denial != "" {
		list[fmt.Sprintf("denials_total{rule=%q}", r.denial)] = 1
	}
	if r.login != "" {
		list[fmt.Sprintf("authentication_failures_total{reason=%q}", r.login)] = 1
	}
	return list
}

// refusedEntries returns the audit log's entries for calls that ended with an error.
func (v *visitor) refusedEntries() (found []map[string]any) {
	for _, line := range v.log.Lines(v.t, "call") {
		if _, failed := line["error"]; failed {
			found = append(found, line)
		}
	}
	return found
}

// isDryRun reports whether the endpoint is a dry run, which has neither an audit log nor metrics.
func (d *endpoint) isDryRun() bool { return strings.HasPrefix(d.name, dryRunEndpoint) }
