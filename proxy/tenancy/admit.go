package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Grant is an admitted call. The caller must make the call with Params, pass the outcome to
// Answer, and then call Close.
type Grant struct {
	Params map[string]any

	scope        *Scope // nil if the user has no tenant
	method       *rpcschema.Method
	plan         *plan.Plan
	owned        bool              // all objects named in the call belong to the tenant
	namedObjects int               // number of objects named in the call
	hidden       map[string]string // unused name → the foreign name that it replaces
	raised       []string          // parameters that were set to a safer value than the client's
	ownership    *ownershipCheck
	claim        *claim // reserved part of the quota
	offline      bool   // there is no target, so names that only a target can decide about are permitted
}

// Hidden returns the number of names in the call that do not belong to the tenant.
func (g *Grant) Hidden() int { return len(g.hidden) }

// Raised returns the parameters for which Admit chose a safer value than the client.
func (g *Grant) Raised() []string { return g.raised }

// MayCall reports whether the tenant's users may call the method with at least some parameters.
func (s *Scope) MayCall(method string) bool {
	if s == nil {
		return true
	}
	p := s.tenancy.plans.Of(method)
	return p != nil && p.Refusal == ""
}

// Admit decides whether a tenant may make a call. The parameters must be valid. The error is a
// *Refusal, a *QuotaError, ErrBusy or ask's error; if Admit returns an error, the call must not be
// made.
func (s *Scope) Admit(ctx context.Context, m *rpcschema.Method, params map[string]any, ask Ask) (*Grant, error) {
	g := &Grant{Params: params, scope: s, method: m}
	if s == nil {
		return g, nil
	}
	g.plan = s.tenancy.plans.Of(m.Name)
	if g.plan == nil {
		return nil, fmt.Errorf("%s: this method is not in the schema, so the proxy cannot check what a tenant may do with it. Nothing was executed", m.Name)
	}
	if err := g.admitMethod(); err != nil {
		return nil, err
	}
	if g.plan.Open {
		return g, nil
	}
	g.ownership = &ownershipCheck{scope: s, ask: ask, began: now()}
	g.ownership.fresh = m.Mutates
	g.ownership.stale = !m.Mutates || m.Name == "nvmf_delete_subsystem"
	if err := g.admitParams(ctx, params); err != nil {
		return nil, err
	}
	admitted := false
	defer func() {
		if !admitted { // after an error or a panic
			g.releaseClaim()
		}
	}()
	if err := g.reserve(ctx, ask); err != nil {
		return nil, err
	}
	admitted = true
	return g, nil
}

// admitParams determines the parameters to send.
func (g *Grant) admitParams(ctx context.Context, params map[string]any) error {
	if params != nil {
		g.Params = make(map[string]any, len(params))
	}
	for name, v := range params {
		p, ok := g.plan.Params[name]
		if !ok {
			return fmt.Errorf("%s: parameter %s was not validated", g.method.Name, name)
		}
		fitted, err := g.admit(ctx, p.Form, p.Path, v)
		if err != nil {
			return err
		}
		g.Params[name] = fitted
	}
	for name, p := range g.plan.Params {
		if _, given := params[name]; !given {
			instead, err := g.leftOut(p.Form, p.Path)
			if err != nil {
				return err
			}
			if instead != nil {
				if g.Params == nil {
					g.Params = map[string]any{}
				}
				g.Params[name] = instead
			}
		}
	}
	return g.checkNamedObjects()
}

// checkNamedObjects decides whether the call is permitted, given the objects that it names. The
// individual values have already been checked.
func (g *Grant) checkNamedObjects() error {
	for _, name := range g.plan.Chosen {
		if _, given := g.Params[name]; !given {
			return g.scope.refuse("%s: without %s, SPDK would choose a name that does not belong to this tenant: set it to a name of this tenant", g.method.Name, name)
		}
	}
	if g.namedObjects == 0 && (g.method.Mutates || !g.plan.Lists) {
		return g.scope.refuse("%s affects the whole target unless it names an object: name an object of this tenant", g.method.Name)
	}
	g.owned = g.namedObjects > 0 && len(g.hidden) == 0
	return nil
}

// admit returns the value to send in place of v: v itself, or a copy in which foreign names are
// replaced. If the value is not permitted, the error is a *Refusal.
func (g *Grant) admit(ctx context.Context, f *plan.Form, path string, v any) (any, error) {
	for _, o := range f.Opens {
		if o.By(v) {
			instead, err := g.open(o, path)
			if err != nil {
				return nil, err
			}
			if instead != nil {
				v = instead
			}
		}
	}
	for _, a := range f.Allocates {
		if kind, bound := a.Exceeded(v); kind != "" && !slices.Contains(g.scope.Allow, AnySize) {
			return nil, g.scope.refuse("%s: %s must be %s %s for a tenant, because other values take memory or time from the whole target: choose another value, or ask the administrator of this proxy for `allow: [%s]` under tenants",
				g.method.Name, g.shortPath(path), kind, bound, AnySize)
		}
	}
	t := plan.TypeOf(v)
	if kinds := f.Kinds[t]; len(kinds) > 0 {
		for _, kind := range kinds {
			fitted, err := g.name(ctx, kind, path, v)
			if err != nil {
				return nil, err
			}
			v = fitted
		}
		return v, nil
	}
	if !f.Fits[t] {
		return nil, g.unknown(path)
	}
	switch v := v.(type) {
	case map[string]any:
		copied := make(map[string]any, len(v))
		for name, member := range v {
			below, named := f.Member(name)
			if !named {
				return nil, g.unknown(path + "." + name)
			}
			fitted, err := g.admit(ctx, below, path+"."+name, member)
			if err != nil {
				return nil, err
			}
			copied[name] = fitted
		}
		for _, m := range f.Members {
			if _, given := v[m.Name]; !given {
				instead, err := g.leftOut(m.Form, path+"."+m.Name)
				if err != nil {
					return nil, err
				}
				if instead != nil {
					copied[m.Name] = instead
				}
			}
		}
		return copied, nil
	case []any:
		copied := make([]any, len(v))
		for i, item := range v {
			fitted, err := g.admit(ctx, f.Items, path, item)
			if err != nil {
				return nil, err
			}
			copied[i] = fitted
		}
		return copied, nil
	case string:
		if f.Free && !plan.HarmlessText(path) || !plain(v) && v != "" {
			return nil, g.scope.refuse("%s: %s may name an object of another tenant: leave it out", g.method.Name, g.shortPath(path))
		}
		if g.plan.Creates && f.UUID {
			return nil, g.scope.refuse("%s: a UUID is a name of a bdev, and tenants may not choose it: omit %s", g.method.Name, g.shortPath(path))
		}
	}
	return v, nil
}

// leftOut decides whether a parameter may be absent, so that its default applies. It returns the
// value to send instead, or nil if the default is permitted.
func (g *Grant) leftOut(f *plan.Form, path string) (instead any, err error) {
	for _, o := range f.Opens {
		if o.ByDefault {
			if instead, err = g.open(o, path); err != nil {
				return nil, err
			}
		}
	}
	return instead, nil
}

// open decides whether the tenant may use a value that gives access to other clients. It returns
// the value to send instead, or nil if the value is permitted.
func (g *Grant) open(o plan.Opening, path string) (instead any, err error) {
	if slices.Contains(g.scope.Allow, o.To) {
		return nil, nil
	}
	if o.Instead != nil {
		g.raised = append(g.raised, g.shortPath(path))
		return o.Instead, nil
	}
	return nil, g.scope.refuse("%s: with this value of %s, %s. This tenant may not do that: %s, or ask the administrator of this proxy for `allow: [%s]` under tenants",
		g.method.Name, g.shortPath(path), opened[o.To].does, opened[o.To].instead, o.To)
}

// AnySize is the value of allow that lifts the limits of x-spdk-allocates.
const AnySize = "any-size"

// opened maps each kind of x-spdk-opens to its effect, and to the alternative that refusals
// suggest.
var opened = map[string]struct{ does, instead string }{
	"any-host":        {"every host is admitted, not only those under `hosts`", "admit hosts one by one"},
	"unauthenticated": {"initiators need not authenticate", "require CHAP"},
	"deleted-data":    {"others can read deleted data", "choose to have it zeroed"},
	"device-commands": {"hosts can send commands to the underlying device, which others also use", "leave it out"},
}

// unknown refuses a value that the schema does not describe.
func (g *Grant) unknown(path string) error {
	return g.scope.refuse("%s: the schema does not describe what %s names: leave it out", g.method.Name, g.shortPath(path))
}

// shortPath returns a path without its method.
func (g *Grant) shortPath(path string) string { return strings.TrimPrefix(path, g.method.Name+".") }

// name decides whether the tenant may use a value that names an object, a host or an address.
func (g *Grant) name(ctx context.Context, kind, path string, v any) (any, error) {
	text, isText := v.(string)
	switch {
	case kind == "address":
		if !g.scope.ownsAddress(v) {
			return nil, g.scope.refuse("%s: %s is not an address of this tenant%s", g.method.Name, g.shortPath(path), g.scope.allowed(kind))
		}
		return v, nil
	case !isText:
	case plan.IsInner(kind):
		// With a slash in its name, a volume's alias could look like the alias of a volume in
		// another lvstore. Long names are refused because SPDK truncates them.
		if !plain(text) || kind == "lvol-name" && (strings.Contains(text, "/") || len(text) > 63) {
			return nil, g.scope.refuse("%s: %s must be a name of 1 to 63 bytes without a slash", g.method.Name, g.shortPath(path))
		}
		return v, nil
	case plan.IsConfigured(kind):
		if !g.scope.ownsNamed(kind, text) {
			return nil, g.scope.refuse("%s: %s is not a host of this tenant%s", g.method.Name, g.shortPath(path), g.scope.allowed(kind))
		}
		return v, nil
	case plan.IsNew(kind):
		own := g.scope.dependsOnVolume(plan.Created(kind), text) || g.scope.ownsNamed(plan.Created(kind), text)
		if !g.offline {
			var err error
			if own, err = g.ownership.owns(ctx, plan.Created(kind), text); err != nil {
				return nil, err
			}
		}
		if !own || rpcschema.LooksLikeUUID(text) {
			return nil, g.scope.refuse("%s: %s is not a name that this tenant may choose%s", g.method.Name, g.shortPath(path), g.scope.allowed(plan.Created(kind)))
		}
		g.namedObjects++
		return v, nil
	case plan.IsObject(kind) && g.offline:
		g.namedObjects++
		return v, nil
	case plan.IsObject(kind):
		own, err := g.ownership.owns(ctx, kind, text)
		if err != nil {
			return nil, err
		}
		if own {
			written, err := g.ownership.written(ctx, kind, text)
			if err != nil {
				return nil, err
			}
			own = !written
		}
		g.namedObjects++
		if own {
			return v, nil
		}
		return g.hide(kind, text), nil
	}
	return nil, g.scope.refuse("%s: %s names an object that no tenant can own (%s): leave it out", g.method.Name, g.shortPath(path), kind)
}

// hide returns an unused name of the same kind. Equal names get equal replacements, because SPDK
// may compare them.
func (g *Grant) hide(kind, text string) string {
	for unused, written := range g.hidden {
		if written == text {
			return unused
		}
	}
	unused := uuid.NewString()
	switch kind {
	case "nqn":
		unused = "nqn.2014-08.org.nvmexpress:uuid:" + unused
	case "iqn":
		unused = "iqn.2016-06.io.spdk:" + unused
	}
	if g.hidden == nil {
		g.hidden = map[string]string{}
	}
	g.hidden[unused] = text
	return unused
}

// restore replaces names that hide invented in SPDK's message with the names that the client wrote.
func (g *Grant) restore(message string) string {
	for unused, written := range g.hidden {
		message = strings.ReplaceAll(message, unused, written)
	}
	return message
}

// Close ends the call. If Answer was not called, the outcome counts as unknown.
func (g *Grant) Close() {
	if g.claim != nil && !g.claim.settled {
		g.claim.settle(spdkrpc.OutcomeUnknown)
	}
	g.releaseClaim()
}

func (g *Grant) releaseClaim() {
	if g.claim != nil {
		g.claim.leave()
		g.claim = nil
	}
}

// Answer records the outcome of the call, and returns the part that the tenant may see.
func (g *Grant) Answer(ctx context.Context, result json.RawMessage, err error) (json.RawMessage, error) {
	if g.scope == nil {
		return result, err
	}
	if g.claim != nil {
		g.claim.settle(err)
	}
	if g.method.Mutates && (err == nil || errors.Is(err, spdkrpc.OutcomeUnknown)) && (g.claim == nil || g.claim.asked == amount{}) {
		g.scope.volumes.noteDecrease()
		g.scope.exports.noteDecrease()
	}
	if g.plan.LVStores {
		g.scope.tenancy.stores.forget()
	}
	if err != nil {
		return nil, g.restored(err)
	}
	return g.filter(ctx, result)
}
