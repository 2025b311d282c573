package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
)

// A maker creates random roles and parameters from a seed.
type maker struct{ *rand.Rand }

func (k maker) method() *rpcschema.Method {
	methods := rpcschema.Default().Methods()
	return methods[k.IntN(len(methods))]
}

// rule returns a valid rule for m, or for several methods.
func (k maker) rule(m *rpcschema.Method, deny bool) Rule {
	if k.IntN(4) == 0 {
		return Rule{Method: m.Name[:1+k.IntN(len(m.Name))] + "*"}
	}
	r := Rule{Method: m.Name}
	for _, p := range m.Params {
		if k.IntN(3) > 0 {
			continue
		}
		where := maps.Clone(r.Where)
		if where == nil {
			where = map[string]Test{}
		}
		where["/"+p.Name] = k.test(p.Schema)
		if _, err := newConditions(where, m, rpcschema.Default(), deny); err == nil {
			r.Where = where
		}
	}
	return r
}

func (k maker) test(s *rpcschema.Schema) (t Test) {
	s = rpcschema.Default().Resolve(s)
	if k.IntN(3) == 0 {
		t.Absent = new(k.IntN(2) == 0)
	}
	switch v := (sample.Maker{Document: rpcschema.Default(), Extreme: k.IntN(2) == 0}).Value(s).(type) {
	case string:
		t.Enum = []Value{Text(v), Text(v + "x")}
		if len(s.Enum) > 0 {
			t.Enum = t.Enum[:1]
		}
		if k.IntN(2) == 0 {
			t.Enum, t.Glob = nil, v[:k.IntN(len(v)+1)]+"*"
		}
	case bool:
		t.Enum = []Value{{v}}
	case json.Number:
		t.Enum = []Value{{v}}
	default:
		t.Absent = new(k.IntN(2) == 0)
	}
	return t
}

// params returns parameters that are valid for a release, except that some are omitted or invalid.
func (k maker) params(m *rpcschema.Method) map[string]any {
	release := []string{"v23.01", "v24.01", "v26.05"}[k.IntN(3)]
	params := sample.Maker{Document: rpcschema.Default(), Release: rpcschema.MustRelease(release), Full: k.IntN(2) == 0, Extreme: k.IntN(2) == 0}.Params(m)
	for _, name := range slices.Sorted(maps.Keys(params)) {
		switch k.IntN(8) {
		case 0:
			delete(params, name)
		case 1:
			params[name] = []any{nil, "x", json.Number("1e5"), json.Number("18446744073709551616"), []any{}, map[string]any{"a": nil}, true}[k.IntN(7)]
		}
	}
	return params
}

func (k maker) role(methods []*rpcschema.Method) (r Role) {
	for range 1 + k.IntN(4) {
		r.Allow = append(r.Allow, k.rule(methods[k.IntN(len(methods))], false))
	}
	for range k.IntN(2) {
		r.Deny = append(r.Deny, k.rule(methods[k.IntN(len(methods))], true))
	}
	return r
}

// rounds runs a hundred random cases. In each case, rules and calls use the same methods.
func rounds(t *testing.T, each func(t *testing.T, k maker, methods []*rpcschema.Method)) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			k := maker{rand.New(rand.NewPCG(seed, 26))}
			each(t, k, []*rpcschema.Method{k.method(), k.method(), k.method()})
		})
	}
}

func made(t *testing.T, roles map[string]Role, users map[string][]string) *Policy {
	p, err := New(roles, with(users), rpcschema.Default())
	require.NoError(t, err)
	return p
}

// Adding a deny never allows additional calls.
func TestDenyNeverAllows(t *testing.T) {
	var before, after int
	rounds(t, func(t *testing.T, k maker, methods []*rpcschema.Method) {
		role := k.role(methods)
		more := role
		more.Deny = append(slices.Clone(role.Deny), k.rule(methods[k.IntN(len(methods))], true))
		p := made(t, map[string]Role{"a": role, "b": more}, map[string][]string{"a": {"a"}, "b": {"b"}})
		for _, m := range methods {
			for range 20 {
				params := k.params(m)
				was, is := p.Decide("a", m.Name).WithParams(params).Allowed, p.Decide("b", m.Name).WithParams(params).Allowed
				assert.False(t, is && !was, "%s %v", m.Name, params)
				if was {
					before++
				}
				if is {
					after++
				}
			}
		}
	})
	assert.Greater(t, before, after, "at least some calls must be denied")
	assert.NotZero(t, after)
}

// A role that extends other roles leads to the same decisions as having all of these roles, in any
// order and at any depth.
func TestExtendedRolesAreCombined(t *testing.T) {
	allowed, refused := 0, 0
	rounds(t, func(t *testing.T, k maker, methods []*rpcschema.Method) {
		a, b, c := k.role(methods), k.role(methods), k.role(methods)
		child, grandchild, backwards := c, c, c
		child.Extends, backwards.Extends = []string{"a", "b"}, []string{"b", "a"}
		grandchild.Extends = []string{"b2", "a"}
		p := made(t, map[string]Role{"a": a, "b": b, "b2": {Extends: []string{"b"}}, "c": c, "child": child, "grandchild": grandchild, "backwards": backwards},
			map[string][]string{"union": {"a", "b", "c"}, "child": {"child"}, "grandchild": {"grandchild"}, "backwards": {"backwards"}})
		for _, m := range methods {
			for range 10 {
				params := k.params(m)
				want := p.Decide("union", m.Name).WithParams(params).Allowed
				for _, user := range []string{"child", "grandchild", "backwards"} {
					assert.Equal(t, want, p.Decide(user, m.Name).WithParams(params).Allowed, "%s %s %v", user, m.Name, params)
				}
				if want {
					allowed++
				} else {
					refused++
				}
			}
		}
	})
	assert.NotZero(t, allowed)
	assert.NotZero(t, refused)
}

// A deny applies to every call to which an allow with the same condition applies.
func TestDenyOverridesAllowWithTheSameCondition(t *testing.T) {
	both := 0
	rounds(t, func(t *testing.T, k maker, methods []*rpcschema.Method) {
		m := methods[0]
		r := k.rule(m, true)
		p := made(t, map[string]Role{"allow": {Allow: []Rule{r}}, "deny": {Allow: []Rule{{Method: "*"}}, Deny: []Rule{r}}},
			map[string][]string{"allow": {"allow"}, "deny": {"deny"}})
		for range 20 {
			params := k.params(m)
			if p.Decide("allow", m.Name).WithParams(params).Allowed {
				both++
				assert.False(t, p.Decide("deny", m.Name).WithParams(params).Allowed, "%s %v", r, params)
			}
		}
	})
	assert.NotZero(t, both)
}

// The decision is the same for all notations of a size.
func TestSizeNotationsLeadToTheSameDecision(t *testing.T) {
	k := maker{rand.New(rand.NewPCG(1, 26))}
	for range 60 {
		bound, mib := k.Uint64N(1<<30), k.Uint64N(1<<30)
		if k.IntN(3) == 0 {
			mib = bound + k.Uint64N(3) - min(bound, 1)
		}
		p := made(t, parse(t, fmt.Sprintf("a: {allow: [{method: bdev_lvol_create, where: {/size_in_mib: {maximum: %d}}}]}\nd: {allow: [\"*\"], deny: [{method: bdev_lvol_create, where: {/size_in_mib: {minimum: %d}}}]}", bound, bound)),
			map[string][]string{"a": {"a"}, "d": {"d"}})
		for user, want := range map[string]bool{"a": mib <= bound, "d": mib < bound} {
			for _, params := range []map[string]any{
				{"size_in_mib": json.Number(fmt.Sprint(mib))},
				{"size": json.Number(fmt.Sprint(mib << 20))},
				// SPDK rounds this size up
				{"size": json.Number(fmt.Sprint(mib<<20 - min(mib, 1)*k.Uint64N(1<<20)))},
			} {
				assert.Equal(t, want, p.Decide(user, "bdev_lvol_create").WithParams(params).Allowed, "%s %d %v", user, bound, params)
			}
		}
	}
}

// FuzzConditions checks for any condition and call that nothing panics, that a deny covers an allow
// with the same condition, and that the decision is consistent with the method's rules.
func FuzzConditions(f *testing.F) {
	f.Add("bdev_lvol_create", `{/lvs_name: {glob: "lvs-a*"}, /size_in_mib: {maximum: 102400}}`, `{"lvs_name":"lvs-a","size":1048576}`)
	f.Add("bdev_get_iostat", `{"/names/*": {glob: "a*", absent: true}}`, `{"name":"a"}`)
	f.Add("iscsi_create_target_node", `{"/pg_ig_maps/*/pg_tag": {enum: [1, 2]}}`, `{"pg_ig_maps":[{"pg_tag":1}]}`)
	f.Add("nvmf_create_subsystem", `{/allow_any_host: {enum: [true], absent: false}, /nqn: {enum: ["nqn.a"]}}`, `{"nqn":"NQN.A","allow_any_host":true}`)
	f.Fuzz(func(t *testing.T, method, where, text string) {
		m, ok := rpcschema.Default().Method(method)
		v, err := jsonrpc.DecodeValue([]byte(text), jsonrpc.Limits{})
		params, isObject := v.(map[string]any)
		r := Rule{Method: method}
		if !ok || err != nil || !isObject || yamlDecode(where, &r.Where) != nil || len(r.Where) == 0 {
			t.Skip()
		}
		judged, certain := normalize(m, params)
		allow, err := newConditions(r.Where, m, rpcschema.Default(), false)
		if err != nil {
			t.Skip()
		}
		fits := certain && (&bound{conditions: allow}).holds(judged)
		deny, err := newConditions(r.Where, m, rpcschema.Default(), true)
		if err != nil {
			return
		}
		stops := !certain || (&bound{conditions: deny}).holds(judged)
		if fits && !stops {
			t.Errorf("%s: an allow applies to %s, but the same deny does not", r, text)
		}
	})
}
