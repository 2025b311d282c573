package dryrun

import (
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A DryRun decides about calls without a target and without users' secrets.
type DryRun struct {
	config  *config.Config
	schema  *rpcschema.Document
	policy  *policy.Policy
	tenancy *tenancy.Tenancy
}

// Load loads a configuration file for a DryRun. It does not check the parts of the file that a
// DryRun does not need; check-config does.
func Load(path string, schema *rpcschema.Document) (*DryRun, error) {
	c, err := config.LoadWithoutSecrets(path)
	if err != nil {
		return nil, err
	}
	d, err := New(c, schema)
	if err != nil {
		return nil, config.InFile(path, err)
	}
	return d, nil
}

// New returns a DryRun for a configuration.
func New(c *config.Config, schema *rpcschema.Document) (*DryRun, error) {
	roles, wrongRoles := policy.New(c.Roles, c.PolicyUsers(), schema)
	tenants, wrongQuotas := c.TenancyTenants()
	scopes, wrongTenants := tenancy.New(tenants, c.TenantsOfUsers(), schema, nil)
	if err := errors.Join(wrongRoles, wrongQuotas, wrongTenants); err != nil {
		return nil, err
	}
	return Of(c, schema, roles, scopes), nil
}

// Of returns a DryRun for stages that have already been created from a configuration.
func Of(c *config.Config, schema *rpcschema.Document, roles *policy.Policy, scopes *tenancy.Tenancy) *DryRun {
	return &DryRun{config: c, schema: schema, policy: roles, tenancy: scopes}
}

// Policy returns the policy in the configuration.
func (d *DryRun) Policy() *policy.Policy { return d.policy }

// Users lists the users in the order of the configuration.
func (d *DryRun) Users() []config.User { return d.config.Users }

// A Result is the decision about a call, with its reasons.
type Result struct {
	User         config.User
	Method       *rpcschema.Method
	Translations []rpcschema.Translation
	Invalid      error // why SPDK would reject the parameters, or nil
	Decision     policy.Decision
	Rules        []policy.Finding
	Standing     string // how the method is treated for the user's tenant; "" if the user has none
	Foreign      bool   // whether tenants are not permitted to call the method
	Refused      bool   // whether the tenant's configuration does not allow the parameters
}

// Allowed reports whether the proxy would send the call to SPDK, as far as this can be determined
// without a target. A tenant's objects and quota cannot be checked without a target.
func (c *Result) Allowed() bool {
	return c.Decision.Allowed && c.Invalid == nil && !c.Foreign && !c.Refused
}

// Rule returns the rule that led to the decision.
func (c *Result) Rule() string {
	switch {
	case c.Decision.Refused():
	case c.Foreign, c.Refused:
		return "tenant " + c.User.Tenant
	case c.Invalid != nil:
		return "the schema"
	}
	return c.Decision.Rule
}

// Call returns the decision about a call. It uses the proxy's own functions, but only the stages
// that need no target. If given is false, Call decides about the method with any parameters. The
// error is an *rpcschema.UnknownMethodError.
func (d *DryRun) Call(user config.User, name string, params map[string]any, given bool, release rpcschema.Release) (*Result, error) {
	stages := decide.Stages{Schema: d.schema, Policy: d.policy, Translate: d.config.Compatibility.Translate}
	call, err := stages.Method(user.Name, name)
	if call == nil {
		return nil, err
	}
	c := &Result{User: user, Method: call.Method}
	judged := false
	if given {
		if err := call.Accept(params, release); !errors.Is(err, decide.ErrDeniedParams) {
			c.Invalid = err
		}
		if judged = c.Invalid == nil; judged {
			params = call.Params
		}
	}
	c.Decision, c.Translations = call.Decision, call.Translations
	c.Rules = d.policy.Explain(user.Name, c.Method.Name, params, judged)
	if scope := d.tenancy.Of(user.Name); scope != nil {
		c.Standing, c.Foreign = scope.Standing(c.Method.Name), !scope.MayCall(c.Method.Name)
		if judged && c.Decision.Allowed && !c.Foreign {
			var refusal *tenancy.Refusal
			if c.Refused = errors.As(scope.AdmitOffline(c.Method, params), &refusal); c.Refused {
				c.Standing = "refused: " + refusal.Reason
			}
		}
	}
	return c, nil
}

// Verdict expresses the decision in one sentence. given reports whether the call has parameters.
func (c *Result) Verdict(given bool) string {
	with := ""
	if given {
		with = " with these parameters"
	}
	switch {
	case c.Allowed() && c.Decision.Learned:
		return fmt.Sprintf("LEARNING: %s may call %s%s only while learning is on.", c.User.Name, c.Method.Name, with)
	case c.Allowed():
		return fmt.Sprintf("%s may call %s%s.", c.User.Name, c.Method.Name, with)
	case c.Decision.Refused() && c.Decision.Rule != policy.NoRuleThere:
		return fmt.Sprintf("%s may not call %s.", c.User.Name, c.Method.Name)
	case c.Foreign && !c.Decision.Refused():
		return fmt.Sprintf("%s may not call %s: tenants may not call it.", c.User.Name, c.Method.Name)
	case c.Invalid != nil:
		return fmt.Sprintf("%s may not make this call: its parameters are not valid for %s.", c.User.Name, c.Method.Name)
	case c.Refused:
		return fmt.Sprintf("%s may not call %s with these parameters: tenant %s may not use one of them.", c.User.Name, c.Method.Name, c.User.Tenant)
	case c.Decision.Rule == policy.Open:
		return fmt.Sprintf("Whether %s may call %s depends on the parameters: give them.", c.User.Name, c.Method.Name)
	}
	return fmt.Sprintf("%s may not call %s with these parameters.", c.User.Name, c.Method.Name)
}
