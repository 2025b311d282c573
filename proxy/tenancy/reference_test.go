package tenancy

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
)

// A reference filters like filter, but in the simplest way: it decodes the whole result, reads the
// schema directly, and looks up each name as it encounters it. It does not handle repeated members.
type reference struct {
	ctx   context.Context
	grant *Grant
	t     *Tenancy
	err   error
}

// referenceOf returns a result as filtered by the reference, or false if no part of it remains.
func referenceOf(ctx context.Context, g *Grant, result json.RawMessage) (json.RawMessage, bool, error) {
	v, err := jsonrpc.DecodeValue(result, jsonrpc.Limits{})
	if err != nil {
		return nil, false, err
	}
	if err := g.learnFromResult(ctx, string(result)); err != nil {
		return nil, false, err
	}
	g.ownership.filtering = false
	r := &reference{ctx: ctx, grant: g, t: g.scope.tenancy}
	kept, ok := r.root(r.t.plans.Nodes(g.method.Result.Schema), v)
	if r.err != nil || !ok {
		return nil, false, r.err
	}
	text, err := jsonrpc.Marshal(kept)
	return text, true, err
}

func (r *reference) root(list []plan.Node, v any) (any, bool) {
	owned := r.grant.owned
	if plan.Sensitive(list) {
		return nil, false
	}
	switch v := v.(type) {
	case map[string]any:
		if member, kind := r.t.plans.Identity(list); kind != "" && v[member] != nil {
			if !r.owns(kind, v[member]) {
				return nil, false
			}
			owned = true
		}
		return r.members(list, v, owned, true), true
	case []any:
		return r.list(list, v, owned), true
	}
	if owned && r.grant.method.Mutates && slices.ContainsFunc(plan.KindsOf(list, v), plan.IsObject) {
		return v, true
	}
	_, text := v.(string)
	return r.value(list, v, owned || !text)
}

func (r *reference) value(list []plan.Node, v any, owned bool) (any, bool) {
	if plan.Sensitive(list) || !slices.ContainsFunc(list, func(n plan.Node) bool { return n.Fits(v) }) {
		return nil, false
	}
	if kinds := plan.KindsOf(list, v); len(kinds) > 0 {
		for _, kind := range kinds {
			if plan.IsInner(kind) && !owned || !plan.IsInner(kind) && !r.owns(kind, v) {
				return nil, false
			}
		}
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		if member, kind := r.t.plans.Identity(list); kind != "" && v[member] != nil && r.owns(kind, v[member]) {
			owned = true
		}
		return r.members(list, v, owned, false), true
	case []any:
		return r.list(list, v, owned), true
	}
	return v, owned
}

func (r *reference) members(list []plan.Node, object map[string]any, owned, root bool) map[string]any {
	kept := make(map[string]any, len(object))
	for name, v := range object {
		below, named := r.t.plans.Member(list, name)
		_, text := v.(string)
		switch {
		case named:
			if filtered, ok := r.value(below, v, owned || root && plan.TypeOf(v) < jsonwalk.Array && !text); ok {
				kept[name] = filtered
			} else if text && plan.Emptiable(below) {
				kept[name] = ""
			}
		default:
			if filtered, ok := r.item(below, v, owned); ok && owned {
				kept[name] = filtered
			}
		}
	}
	return kept
}

func (r *reference) list(list []plan.Node, array []any, owned bool) []any {
	kept := make([]any, 0, len(array))
	items := r.t.plans.Items(list)
	for _, v := range array {
		if filtered, ok := r.item(items, v, owned); ok {
			kept = append(kept, filtered)
		}
	}
	return kept
}

func (r *reference) item(list []plan.Node, v any, owned bool) (any, bool) {
	object, ok := v.(map[string]any)
	if !ok || len(list) == 0 || !slices.ContainsFunc(list, func(n plan.Node) bool { return n.Fits(v) }) || len(plan.KindsOf(list, v)) > 0 {
		return r.value(list, v, owned)
	}
	if plan.Sensitive(list) {
		return nil, false
	}
	if member, kind := r.t.plans.Identity(list); kind != "" {
		owned = object[member] != nil && r.owns(kind, object[member])
	}
	if !owned {
		return nil, false
	}
	return r.members(list, object, true, false), true
}

func (r *reference) owns(kind string, v any) bool {
	if r.err != nil {
		return false
	}
	if kind == "address" {
		return r.grant.scope.ownsAddress(v)
	}
	name, ok := v.(string)
	if !ok {
		return false
	}
	if plan.IsConfigured(kind) {
		return r.grant.scope.ownsNamed(kind, name)
	}
	if !plan.IsObject(kind) {
		return false
	}
	own, err := r.grant.ownership.owns(r.ctx, kind, name)
	r.err = err
	return own && err == nil
}
