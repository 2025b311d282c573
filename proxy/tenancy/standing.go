package tenancy

import (
	"context"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Standing describes whether the tenant's users may call a method, and what calls may affect. The
// description does not depend on the parameters.
func (s *Scope) Standing(method string) string {
	p := s.tenancy.plans.Of(method)
	switch {
	case p.Refusal != "":
		return "refused: " + p.Refusal
	case p.Open:
		return "allowed: it names nothing and changes nothing"
	case p.Lists:
		return "allowed: its result has only the tenant's objects"
	}
	return "allowed for the tenant's objects: their owner and the quota are checked only when the call is made"
}

// AdmitOffline returns the *Refusal with which Admit refuses a call because of the tenant's
// configuration, whatever exists on the target. It makes no queries, and checks neither quotas nor
// whether existing objects belong to the tenant.
func (s *Scope) AdmitOffline(m *rpcschema.Method, params map[string]any) error {
	if s == nil {
		return nil
	}
	g := &Grant{scope: s, method: m, plan: s.tenancy.plans.Of(m.Name), offline: true}
	if g.plan == nil {
		return nil
	}
	if err := g.admitMethod(); err != nil || g.plan.Open {
		return err
	}
	return g.admitParams(context.Background(), params)
}

// admitMethod returns a *Refusal if tenants are not permitted to call the method at all.
func (g *Grant) admitMethod() error {
	if g.plan.Refusal != "" {
		return g.scope.refuse("tenants may not call %s: %s", g.method.Name, g.plan.Refusal)
	}
	return nil
}
