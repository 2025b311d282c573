package console

import (
	"context"

	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// These are the decisions as the console displays them.
const (
	isAllowed     = "allowed"
	isRefused     = "refused"
	isConditional = "conditional" // the decision depends on the parameters
)

// An AccessAnswer contains the methods that a user may call.
type AccessAnswer struct {
	User    string         `json:"user"`
	Roles   []string       `json:"roles"`
	Tenant  *string        `json:"tenant"`
	Methods []MethodAccess `json:"methods"`
}

type MethodAccess struct {
	Name     string   `json:"name"`
	Decision string   `json:"decision"`
	Rule     string   `json:"rule"`
	Depends  []string `json:"depends,omitempty"` // names of the rules with conditions
	Learning bool     `json:"learning,omitempty"`
	Redacted bool     `json:"redacted,omitempty"` // results are returned without secrets
}

// Access serves AccessMethod, which returns the methods that the user of the request may call.
func (s *Server) Access(_ context.Context, r *gate.Request) (any, error) {
	return s.accessOf(r.Settings, r.User), nil
}

func (s *Server) accessOf(current *gate.Settings, user string) AccessAnswer {
	a := AccessAnswer{User: user, Roles: current.Policy.Roles(user), Methods: []MethodAccess{}}
	scope := current.Tenancy.Of(user)
	if scope != nil {
		a.Tenant = &scope.Name
	}
	depends := map[string][]string{}
	for _, p := range current.Policy.Methods(user) {
		depends[p.Method] = p.Depends
	}
	for _, m := range s.Gate.Schema.Methods() {
		if !s.Gate.Offers(m.Name) {
			continue
		}
		d := current.Policy.Decide(user, m.Name)
		access := MethodAccess{Name: m.Name, Decision: decisionOf(d), Rule: d.Rule, Depends: depends[m.Name], Learning: d.Learned, Redacted: d.Redact}
		if !d.Refused() && !scope.MayCall(m.Name) {
			access = MethodAccess{Name: m.Name, Decision: isRefused, Rule: "tenant " + scope.Name}
		}
		a.Methods = append(a.Methods, access)
	}
	return a
}

func decisionOf(d policy.Decision) string {
	switch {
	case d.Allowed:
		return isAllowed
	case d.Refused():
		return isRefused
	}
	return isConditional
}

// An ExplainAnswer reports whether a user may make a call, and why.
type ExplainAnswer struct {
	User       string             `json:"user"`
	Roles      []string           `json:"roles"`
	Tenant     *string            `json:"tenant"`
	Method     string             `json:"method"`
	Summary    string             `json:"summary"`
	Verdict    string             `json:"verdict"` // one sentence
	Decision   string             `json:"decision"`
	Rule       string             `json:"rule"` // name of the rule that decides
	Rules      []ExplainedRule    `json:"rules"`
	Translated []TranslatedParams `json:"translated"`
	Invalid    *string            `json:"invalid"`  // why the parameters are invalid
	Standing   *string            `json:"standing"` // how tenants may call the method
	Learning   bool               `json:"learning"`
	Redacted   bool               `json:"redacted"`
}

type ExplainedRule struct {
	Role    string `json:"role"`
	Rule    string `json:"rule"`
	Effect  string `json:"effect"` // allow or deny
	Decides bool   `json:"decides"`
	Why     string `json:"why"`
}

type TranslatedParams struct {
	From string `json:"from"`
	To   string `json:"to"`
}

var errExplain = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, `send {"method": NAME, "params": {…}}; without params, only the method is considered. Administrators may add "user": NAME`)

// Explain serves ExplainMethod, which returns what `spdk-proxy policy explain` prints about a call
// by the user of the request. For administrators, it also explains other users' calls.
func (s *Server) Explain(_ context.Context, r *gate.Request) (any, error) {
	body, err := visitOf(r).ReadBody(r.Settings.MaxBody)
	if err != nil {
		return nil, err
	}
	asked, err := readExplain(body)
	if err != nil {
		return nil, err
	}
	if asked.user == "" {
		asked.user = r.User
	}
	if asked.user != r.User && !r.Settings.Administrator(r.User) {
		return nil, decide.ErrDenied
	}
	user, err := r.Settings.DryRun.User(asked.user)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", err)
	}
	result, err := r.Settings.DryRun.Call(user, asked.method, asked.params, asked.given, s.Gate.Target.State().Release)
	if err != nil {
		return nil, err
	}
	return explained(result, asked.given), nil
}

// A toExplain is a call to explain.
type toExplain struct {
	user, method string
	params       map[string]any
	given        bool // whether the call has parameters
}

func readExplain(body []byte) (asked toExplain, err error) {
	value, err := jsonrpc.DecodeValue(body, jsonrpc.LimitsV2605)
	if err != nil {
		return asked, errExplain
	}
	object, ok := value.(map[string]any)
	for name, member := range object {
		switch typed := false; name {
		case "method":
			asked.method, typed = member.(string)
			ok = ok && typed
		case "user":
			asked.user, typed = member.(string)
			ok = ok && typed
		case "params":
			asked.params, asked.given = member.(map[string]any)
			ok = ok && (asked.given || member == nil)
		default:
			ok = false
		}
	}
	if !ok || asked.method == "" {
		return asked, errExplain
	}
	return asked, nil
}

func explained(c *dryrun.Result, given bool) ExplainAnswer {
	a := ExplainAnswer{
		User: c.User.Name, Roles: append([]string{}, c.User.Roles...), Method: c.Method.Name, Summary: c.Method.Summary,
		Verdict: c.Verdict(given), Decision: isRefused, Rule: c.Rule(), Rules: []ExplainedRule{}, Translated: []TranslatedParams{},
		Learning: c.Decision.Learned, Redacted: c.Decision.Redact,
	}
	if c.Invalid == nil && !c.Foreign && !c.Refused {
		a.Decision = decisionOf(c.Decision)
	}
	if c.User.Tenant != "" {
		a.Tenant = &c.User.Tenant
	}
	if c.Standing != "" {
		a.Standing = &c.Standing
	}
	if c.Invalid != nil {
		a.Invalid = new(c.Invalid.Error())
	}
	for _, t := range c.Translations {
		a.Translated = append(a.Translated, TranslatedParams{t.From, t.To})
	}
	for _, f := range c.Rules {
		effect := "deny"
		if f.Allow {
			effect = "allow"
		}
		a.Rules = append(a.Rules, ExplainedRule{f.Role, f.Rule, effect, f.Decides, f.Why})
	}
	return a
}
