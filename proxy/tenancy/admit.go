package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Grant is a call that may be made, with Params. Whoever got one must Close
// it, and hand the call's outcome to Answer before.
type Grant struct {
	Params map[string]any

	scope        *Scope // nil: everything is theirs
	method       *rpcschema.Method
	plan         *plan
	owned        bool              // all that the call names is theirs
	namedObjects int               // objects that the call names
	hidden       map[string]string // name that nothing bears → what the client wrote instead
	raised       []string          // parameters that got another value than the client's
	ownership    *ownershipCheck
	claim        *claim // on the quota
}

// Hidden counts the names in the call that are not theirs.
func (g *Grant) Hidden() int { return len(g.hidden) }

// Raised are the parameters that got a safer value than the client gave.
func (g *Grant) Raised() []string { return g.raised }

// MayCall says whether the tenant's users may call a method at all, whatever its
// parameters are.
func (s *Scope) MayCall(method string) bool {
	if s == nil {
		return true
	}
	p := s.tenancy.plans[method]
	return p != nil && p.refusal == ""
}

// Admit decides on a call whose parameters are valid. With an error, which is a
// *Refusal, a *QuotaError, ErrBusy or that of ask, the call must not be made.
func (s *Scope) Admit(ctx context.Context, m *rpcschema.Method, params map[string]any, ask Ask) (*Grant, error) {
	g := &Grant{Params: params, scope: s, method: m}
	if s == nil {
		return g, nil
	}
	g.plan = s.tenancy.plans[m.Name]
	if g.plan == nil {
		return nil, fmt.Errorf("%s: there is no plan for it", m.Name)
	}
	if g.plan.refusal != "" {
		return nil, s.refuse("%s is not for tenants: %s", m.Name, g.plan.refusal)
	}
	if g.plan.open {
		return g, nil
	}
	g.ownership = &ownershipCheck{scope: s, ask: ask, began: now()}
	if params != nil {
		g.Params = make(map[string]any, len(params))
	}
	for name, v := range params {
		p, ok := g.plan.params[name]
		if !ok {
			return nil, fmt.Errorf("%s: parameter %s was not validated", m.Name, name)
		}
		fitted, err := g.admit(ctx, p.form, p.path, v)
		if err != nil {
			return nil, err
		}
		g.Params[name] = fitted
	}
	for name, p := range g.plan.params {
		if _, given := params[name]; !given {
			instead, err := g.leftOut(p.form, p.path)
			if err != nil {
				return nil, err
			}
			if instead != nil {
				if g.Params == nil {
					g.Params = map[string]any{}
				}
				g.Params[name] = instead
			}
		}
	}
	if err := g.checkNamedObjects(); err != nil {
		return nil, err
	}
	admitted := false
	defer func() {
		if !admitted { // with an error or a panic
			g.free()
		}
	}()
	if err := g.reserve(ctx, ask); err != nil {
		return nil, err
	}
	admitted = true
	return g, nil
}

// checkNamedObjects decides on the call as a whole, once each of its values was.
func (g *Grant) checkNamedObjects() error {
	for _, name := range g.plan.chosen {
		if _, given := g.Params[name]; !given {
			return g.scope.refuse("%s: SPDK would choose %s, which would be nobody's: give one of yours", g.method.Name, name)
		}
	}
	if g.namedObjects == 0 && (g.method.Mutates || !g.plan.lists) {
		return g.scope.refuse("%s concerns the whole target unless it names an object of yours: name one", g.method.Name)
	}
	g.owned = g.namedObjects > 0 && len(g.hidden) == 0
	return nil
}

// admit takes one value of the parameters into the call: as it is, with names
// that are not theirs replaced, or not at all.
func (g *Grant) admit(ctx context.Context, f *form, path string, v any) (any, error) {
	for _, o := range f.opens {
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
	t := typeOf(v)
	if kinds := f.kinds[t]; len(kinds) > 0 {
		for _, kind := range kinds {
			fitted, err := g.name(ctx, kind, path, v)
			if err != nil {
				return nil, err
			}
			v = fitted
		}
		return v, nil
	}
	if !f.fits[t] {
		return nil, g.unknown(path)
	}
	switch v := v.(type) {
	case map[string]any:
		copied := make(map[string]any, len(v))
		for name, member := range v {
			below, named := f.member(name)
			if !named {
				return nil, g.unknown(path + "." + name)
			}
			fitted, err := g.admit(ctx, below, path+"."+name, member)
			if err != nil {
				return nil, err
			}
			copied[name] = fitted
		}
		for _, m := range f.members {
			if _, given := v[m.name]; !given {
				instead, err := g.leftOut(m.form, path+"."+m.name)
				if err != nil {
					return nil, err
				}
				if instead != nil {
					copied[m.name] = instead
				}
			}
		}
		return copied, nil
	case []any:
		copied := make([]any, len(v))
		for i, item := range v {
			fitted, err := g.admit(ctx, f.items, path, item)
			if err != nil {
				return nil, err
			}
			copied[i] = fitted
		}
		return copied, nil
	case string:
		if f.free && !slices.Contains(harmlessTexts, path) || !plain(v) && v != "" {
			return nil, g.scope.refuse("%s: what %s names can be nobody's: leave it out", g.method.Name, g.shortPath(path))
		}
		if g.plan.creates && f.uuid {
			return nil, g.scope.refuse("%s: a bdev's UUID is one of its names, and SPDK must choose it: leave %s out", g.method.Name, g.shortPath(path))
		}
	}
	return v, nil
}

// leftOut decides on a value that is not given, and so has its default. It
// returns the value to give instead, or nil.
func (g *Grant) leftOut(f *form, path string) (instead any, err error) {
	for _, o := range f.opens {
		if o.byDefault {
			if instead, err = g.open(o, path); err != nil {
				return nil, err
			}
		}
	}
	return instead, nil
}

// open decides on a value that gives others access. It returns the value to give
// instead, or nil where this one may stay.
func (g *Grant) open(o opening, path string) (instead any, err error) {
	if slices.Contains(g.scope.Allow, o.To) {
		return nil, nil
	}
	if o.Instead != nil {
		g.raised = append(g.raised, g.shortPath(path))
		return o.Instead, nil
	}
	return nil, g.scope.refuse("%s: with this value of %s, %s. This tenant may not do that: %s; an administrator can permit it by `allow: [%s]` under tenants",
		g.method.Name, g.shortPath(path), opened[o.To].does, opened[o.To].instead, o.To)
}

// opened says what the kinds of x-spdk-opens do, and what to do instead.
var opened = map[string]struct{ does, instead string }{
	"any-host":        {"every host is admitted, not only those under `hosts`", "admit hosts one by one"},
	"unauthenticated": {"initiators need not authenticate", "demand CHAP"},
	"deleted-data":    {"others can read what was deleted", "have it zeroed"},
	"device-commands": {"hosts' commands reach the device underneath, and with it what belongs to others", "leave it out"},
}

// unknown refuses what the schema does not describe.
func (g *Grant) unknown(path string) error {
	return g.scope.refuse("%s: what %s names cannot be told: leave it out", g.method.Name, g.shortPath(path))
}

// short is a path without its method.
func (g *Grant) shortPath(path string) string { return strings.TrimPrefix(path, g.method.Name+".") }

// name decides on one value that names something.
func (g *Grant) name(ctx context.Context, kind, path string, v any) (any, error) {
	text, isText := v.(string)
	switch {
	case kind == "address":
		if !g.scope.ownsAddress(v) {
			return nil, g.scope.refuse("%s: %s is none of this tenant's addresses", g.method.Name, g.shortPath(path))
		}
		return v, nil
	case !isText:
	case isInner(kind):
		// A slash could make the alias of a volume look like another lvstore's;
		// what is too long is cut by SPDK.
		if !plain(text) || kind == "lvol-name" && (strings.Contains(text, "/") || len(text) > 63) {
			return nil, g.scope.refuse("%s: %s must be a name of 1 to 63 bytes without slash", g.method.Name, g.shortPath(path))
		}
		return v, nil
	case isGranted(kind):
		if !g.scope.ownsNamed(kind, text) {
			return nil, g.scope.refuse("%s: %s is none of this tenant's hosts", g.method.Name, g.shortPath(path))
		}
		return v, nil
	case isMade(kind):
		own, err := g.ownership.owns(ctx, made[kind], text)
		if err != nil {
			return nil, err
		}
		if !own || looksLikeUUID(text) {
			return nil, g.scope.refuse("%s: %s is not among the names that this tenant may give", g.method.Name, g.shortPath(path))
		}
		g.namedObjects++
		return v, nil
	case isHeld(kind):
		own, err := g.ownership.owns(ctx, kind, text)
		if err != nil {
			return nil, err
		}
		g.namedObjects++
		if own {
			return v, nil
		}
		return g.hide(kind, text), nil
	}
	return nil, g.scope.refuse("%s: %s names what no tenant can own (%s): leave it out", g.method.Name, g.shortPath(path), kind)
}

// hide finds a name that nothing bears, of the kind's form. Equal names stay
// equal, as SPDK may compare them.
func (g *Grant) hide(kind, text string) string {
	for nothing, written := range g.hidden {
		if written == text {
			return nothing
		}
	}
	nothing := uuid.NewString()
	switch kind {
	case "nqn":
		nothing = "nqn.2014-08.org.nvmexpress:uuid:" + nothing
	case "iqn":
		nothing = "iqn.2016-06.io.spdk:" + nothing
	}
	if g.hidden == nil {
		g.hidden = map[string]string{}
	}
	g.hidden[nothing] = text
	return nothing
}

// restore puts what the client wrote back into SPDK's words.
func (g *Grant) restore(message string) string {
	for nothing, written := range g.hidden {
		message = strings.ReplaceAll(message, nothing, written)
	}
	return message
}

// Close ends the call. One that had no Answer may have been executed.
func (g *Grant) Close() {
	if g.claim != nil && !g.claim.settled {
		g.claim.settle(spdkrpc.OutcomeUnknown)
	}
	g.free()
}

func (g *Grant) free() {
	if g.claim != nil {
		g.claim.leave()
		g.claim = nil
	}
}

// Answer takes the outcome of the call that was made, and gives what the tenant
// may see of it.
func (g *Grant) Answer(ctx context.Context, result json.RawMessage, err error) (json.RawMessage, error) {
	if g.scope == nil {
		return result, err
	}
	if g.claim != nil {
		g.claim.settle(err)
	}
	if g.method.Mutates && (err == nil || errors.Is(err, spdkrpc.OutcomeUnknown)) && (g.claim == nil || g.claim.asked == amount{}) {
		g.scope.account.noteDecrease()
	}
	if g.plan.lvstores {
		g.scope.tenancy.stores.forget()
	}
	if err != nil {
		return nil, g.restored(err)
	}
	return g.filter(ctx, result)
}
