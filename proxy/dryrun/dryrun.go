package dryrun

import (
	"errors"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// A DryRun tells how calls would be decided, without a target, and without the users'
// secrets.
type DryRun struct {
	config  *config.Config
	schema  *rpcschema.Document
	policy  *policy.Policy
	tenancy *tenancy.Tenancy
}

// Load reads of a configuration file who may call what. What else is wrong with it,
// check-config tells.
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

// New makes the dry run of a configuration.
func New(c *config.Config, schema *rpcschema.Document) (*DryRun, error) {
	may, wrongRoles := policy.New(c.Roles, c.PolicyUsers(), schema)
	tenants, wrongQuotas := c.TenancyTenants()
	whose, wrongTenants := tenancy.New(tenants, c.TenantsOfUsers(), schema, nil)
	if err := errors.Join(wrongRoles, wrongQuotas, wrongTenants); err != nil {
		return nil, err
	}
	return &DryRun{config: c, schema: schema, policy: may, tenancy: whose}, nil
}

// Policy is what the configuration allows.
func (d *DryRun) Policy() *policy.Policy { return d.policy }

// Users lists the users in the order of the configuration.
func (d *DryRun) Users() []config.User { return d.config.Users }

// A Result is all that is decided on a call.
type Result struct {
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
func (c *Result) Allowed() bool { return c.Decision.Allowed && c.Invalid == nil && !c.Foreign }

// Rule is what decides.
func (c *Result) Rule() string {
	switch {
	case c.Decision.Refused():
	case c.Foreign:
		return "tenant " + c.User.Tenant
	case c.Invalid != nil:
		return "the schema"
	}
	return c.Decision.Rule
}

// Call takes a call through the stages that need no target, in the order of the proxy
// (perform in proxy/rpc.go).
// Without given there are no parameters to decide on yet. The error is an
// *rpcschema.UnknownMethodError.
func (d *DryRun) Call(user config.User, name string, params map[string]any, given bool, release rpcschema.Release) (*Result, error) {
	method, err := d.schema.Find(name, rpcschema.Release{})
	if err != nil {
		return nil, err
	}
	c := &Result{User: user, Method: method, Decision: d.policy.Decide(user.Name, method.Name)}
	judged := false
	if given {
		var sent map[string]any
		sent, c.Translations, c.Invalid = method.Fit(name, params, release, d.config.Compatibility.Translate)
		if c.Invalid == nil {
			c.Invalid = d.schema.ValidateParams(method.Name, sent, release)
		}
		if judged = c.Invalid == nil; judged {
			params, c.Decision = sent, c.Decision.WithParams(sent)
		}
	}
	c.Rules = d.policy.Explain(user.Name, method.Name, params, judged)
	if scope := d.tenancy.Of(user.Name); scope != nil {
		c.Standing, c.Foreign = scope.Standing(method.Name), !scope.MayCall(method.Name)
	}
	return c, nil
}
