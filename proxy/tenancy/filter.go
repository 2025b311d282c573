package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// filter leaves of a result what is theirs.
func (g *Grant) filter(ctx context.Context, result json.RawMessage) (json.RawMessage, error) {
	if g.plan.open || g.owned && g.plan.raw {
		return result, nil
	}
	v, err := jsonrpc.DecodeValue(result, jsonrpc.Limits{Depth: 64})
	if err != nil {
		return nil, fmt.Errorf("%s: the result: %w", g.method.Name, err)
	}
	var unreadable *unreadableError
	if err := g.foresee(ctx, result); err != nil && !errors.As(err, &unreadable) {
		return nil, err // what is not readable teaches nothing, and is left out below
	}
	f := &filter{ctx: ctx, grant: g, t: g.scope.tenancy}
	list := f.t.nodes(g.method.Result.Schema)
	kept, ok := f.root(list, v)
	if f.err != nil {
		return nil, f.err
	}
	if !ok {
		return nil, g.scope.refuse("%s was executed, and its result names what is not this tenant's", g.method.Name)
	}
	return jsonrpc.Marshal(kept)
}

// foresee learns from the result itself what would otherwise take questions.
func (g *Grant) foresee(ctx context.Context, result json.RawMessage) error {
	switch g.method.Name {
	case "bdev_get_bdevs":
		g.sight.listed = g.anchors == 0
		return g.sight.learn(ctx, result)
	case "bdev_lvol_get_lvols":
		return g.sight.learnVolumes(ctx, result)
	}
	return nil
}

// A filter goes through one result. Owned, below, means that what surrounds a
// value is theirs: a value that names nothing is then theirs as well.
type filter struct {
	ctx   context.Context
	grant *Grant
	t     *Tenancy
	err   error
}

// root filters the whole result. What a call that changes something names
// itself, it has made of what is theirs.
func (f *filter) root(list []node, v any) (any, bool) {
	owned := f.grant.owned
	switch v := v.(type) {
	case map[string]any:
		if member, kind := f.t.identity(list); kind != "" && v[member] != nil {
			if !f.owns(kind, v[member]) {
				return nil, false
			}
			owned = true
		}
		return f.members(list, v, owned, true), true
	case []any:
		return f.list(list, v, owned), true
	}
	if owned && f.grant.method.Mutates && !sensitive(list) && slices.ContainsFunc(kindsOf(list, v), isHeld) {
		return v, true
	}
	_, text := v.(string)
	return f.value(list, v, owned || !text)
}

// value filters a value below the root. False: it must not be seen.
func (f *filter) value(list []node, v any, owned bool) (any, bool) {
	if sensitive(list) || !slices.ContainsFunc(list, func(n node) bool { return n.fits(v) }) {
		return nil, false // a secret, or not what the schema describes
	}
	if kinds := kindsOf(list, v); len(kinds) > 0 {
		for _, kind := range kinds {
			if isInner(kind) && !owned || !isInner(kind) && !f.owns(kind, v) {
				return nil, false
			}
		}
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		if member, kind := f.t.identity(list); kind != "" && v[member] != nil && f.owns(kind, v[member]) {
			owned = true
		}
		return f.members(list, v, owned, false), true
	case []any:
		return f.list(list, v, owned), true
	}
	return v, owned
}

// members filters an object's members. One that must not be seen is left out,
// or empty where clients will look for it. Numbers and switches at the root are
// nobody's.
func (f *filter) members(list []node, object map[string]any, owned, root bool) map[string]any {
	kept := make(map[string]any, len(object))
	for name, v := range object {
		below, named := f.t.member(list, name)
		switch {
		case named:
			_, text := v.(string)
			if filtered, ok := f.value(below, v, owned || root && scalar(v) && !text); ok {
				kept[name] = filtered
			} else if text && emptiable(below) {
				kept[name] = ""
			}
		default: // an entry of a map: its name may be an object's
			if filtered, ok := f.item(below, v, owned); ok && owned {
				kept[name] = filtered
			}
		}
	}
	return kept
}

func (f *filter) list(list []node, array []any, owned bool) []any {
	kept := make([]any, 0, len(array))
	items := f.t.items(list)
	for _, v := range array {
		if filtered, ok := f.item(items, v, owned); ok {
			kept = append(kept, filtered)
		}
	}
	return kept
}

// item filters one of several: what names itself must be theirs, and what does
// not must lie in what is.
func (f *filter) item(list []node, v any, owned bool) (any, bool) {
	object, ok := v.(map[string]any)
	if !ok || len(list) == 0 || len(kindsOf(list, v)) > 0 {
		return f.value(list, v, owned)
	}
	if sensitive(list) {
		return nil, false
	}
	if member, kind := f.t.identity(list); kind != "" {
		owned = object[member] != nil && f.owns(kind, object[member])
	}
	if !owned {
		return nil, false
	}
	return f.members(list, object, true, false), true
}

// owns decides on a value that names something.
func (f *filter) owns(kind string, v any) bool {
	if f.err != nil {
		return false
	}
	if kind == "address" {
		return f.grant.scope.ownsAddress(v)
	}
	name, ok := v.(string)
	if !ok {
		return false
	}
	if isGranted(kind) {
		return f.grant.scope.ownsNamed(kind, name)
	}
	if !isHeld(kind) {
		return false
	}
	own, err := f.grant.sight.owns(f.ctx, kind, name)
	f.err = err
	return own && err == nil
}

func scalar(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func sensitive(list []node) bool {
	for _, n := range list {
		if n.sensitive {
			return true
		}
	}
	return false
}

// emptiable texts may be empty by the schema.
func emptiable(list []node) bool {
	for _, n := range list {
		if n.fits("") && n.Format == "" && n.Pattern == "" && n.MinLength == 0 && len(n.Enum) == 0 {
			return true
		}
	}
	return false
}

// restored is SPDK's error in the client's words.
func (g *Grant) restored(err error) error {
	var called *spdkrpc.Error
	if len(g.hidden) == 0 || !errors.As(err, &called) {
		return err
	}
	copied := *called
	copied.Message = g.restore(called.Message)
	return &copied
}
