package proxy

import (
	"errors"

	"github.com/spdkgate/spdkgate/proxy/config"

	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A Rehearsal tells how calls would be decided, without a target, and without the
// users' secrets.
type Rehearsal struct {
	config  *config.Config
	schema  *rpcschema.Document
	policy  *policy.Policy
	tenancy *tenancy.Tenancy
}

// NewRehearsal reads of a configuration file who may call what. What else is
// wrong with it, check-config tells.
func NewRehearsal(path string, schema *rpcschema.Document) (*Rehearsal, error) {
	c, err := config.LoadWithoutSecrets(path)
	if err != nil {
		return nil, err
	}
	r := &Rehearsal{config: c, schema: schema}
	var wrong error
	r.policy, err = newPolicy(c, schema)
	r.tenancy, wrong = newTenancy(c, schema, nil)
	if err = errors.Join(err, wrong); err != nil {
		return nil, config.InFile(path, err)
	}
	return r, nil
}

// Policy is what the configuration allows.
func (r *Rehearsal) Policy() *policy.Policy { return r.policy }

// Users lists the users in the order of the configuration.
func (r *Rehearsal) Users() []config.User { return r.config.Users }

// A Rehearsed call is one with all that is decided on it.
type Rehearsed struct {
	User         config.User
	Method       *rpcschema.Method
	Translations []rpcschema.Translation
	Invalid      error // why it is no call that SPDK takes; nil where no parameters were given
	Decision     policy.Decision
	Rules        []policy.Finding
	Standing     string // of the method to the user's tenant, if there is one
	Foreign      bool   // it is refused to tenants
}

// Allowed tells whether the call would be made. What a tenant's user may touch,
// and the quota, only the target tells.
func (c *Rehearsed) Allowed() bool { return c.Decision.Allowed && c.Invalid == nil && !c.Foreign }

// Rule is what decides.
func (c *Rehearsed) Rule() string {
	switch {
	case c.Decision.Refused():
	case c.Foreign:
		return "tenant " + c.User.Tenant
	case c.Invalid != nil:
		return "the schema"
	}
	return c.Decision.Rule
}

// Call takes a call through the stages that need no target, in perform's order.
// Without given there are no parameters to decide on yet. The error is an
// *rpcschema.UnknownMethodError.
func (r *Rehearsal) Call(user config.User, name string, params map[string]any, given bool, release rpcschema.Release) (*Rehearsed, error) {
	method, err := r.schema.Find(name, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c := &Rehearsed{User: user, Method: method, Decision: r.policy.Decide(user.Name, method.Name)}
	judged := false
	if given {
		var sent map[string]any
		now := &settings{translate: r.config.Compatibility.Translate}
		sent, c.Translations, c.Invalid = now.fit(method, &jsonrpc.Request{Method: name, Params: params}, release)
		if c.Invalid == nil {
			c.Invalid = r.schema.ValidateParams(method.Name, sent, release)
		}
		if judged = c.Invalid == nil; judged {
			params, c.Decision = sent, c.Decision.Given(sent)
		}
	}
	c.Rules = r.policy.Explain(user.Name, method.Name, params, judged)
	if scope := r.tenancy.Of(user.Name); scope != nil {
		c.Standing, c.Foreign = scope.Standing(method.Name), !scope.Might(method.Name)
	}
	return c, nil
}
