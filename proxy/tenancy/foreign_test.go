package tenancy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A spot is the position of a value that names something in a method's parameters.
type spot struct {
	path string
	kind string
	put  func(v any) any // returns the whole parameter with another value at this spot
}

// spots finds the positions of all values in a parameter that name something, at any depth.
func spots(t *Tenancy, list []plan.Node, path string, v any) (found []spot) {
	for _, kind := range plan.KindsOf(list, v) {
		found = append(found, spot{path, kind, func(w any) any { return w }})
	}
	if len(found) > 0 {
		return found
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			below, _ := t.plans.Member(list, name)
			for _, s := range spots(t, below, path+"."+name, member) {
				found = append(found, spot{s.path, s.kind, func(w any) any {
					copied := maps.Clone(v)
					copied[name] = s.put(w)
					return copied
				}})
			}
		}
	case []any:
		if len(v) > 0 {
			for _, s := range spots(t, t.plans.Items(list), path+"[]", v[0]) {
				found = append(found, spot{s.path, s.kind, func(w any) any { return []any{s.put(w)} }})
			}
		}
	}
	return found
}

// gone returns an unused name of the same form.
func gone(name string) string {
	const id = "99999999-abcd-4333-8444-abcdefabcdef"
	if !rpcschema.LooksLikeUUID(name) {
		return strings.ReplaceAll(name, "blue", "gone")
	}
	made := id
	if len(name) == 32 {
		made = strings.ReplaceAll(made, "-", "")
	}
	if name == strings.ToUpper(name) {
		made = strings.ToUpper(made)
	}
	return made
}

// outcome returns everything that a client can see of a call's outcome, with the name removed.
func outcome(result json.RawMessage, err error, name string) string {
	var called *spdkrpc.Error
	says := fmt.Sprintf("%s %v", result, err)
	if errors.As(err, &called) {
		says = fmt.Sprintf("%d %s %s", called.Code, called.Kind, called.Message)
	}
	return strings.ReplaceAll(says, name, "NAME")
}

// own returns red's names by kind, for calls that name another tenant's object at only one spot.
func own(red things) map[string]string {
	return map[string]string{
		"bdev": red.volume, "lvstore": red.lvs, "lvstore-uuid": red.lvsUUID, "nqn": red.nqn, "iqn": red.iqn, "key": red.key, "host-nqn": redHost,
		"new-bdev": "red-new", "new-lvstore": "lvs-red2", "new-nqn": "nqn.2016-06.io.spdk:red-new", "new-iqn": "iqn.2016-06.io.spdk:red-new", "new-key": "red-new",
		"lvol-name": "new",
	}
}

// trials calls each with variants of a method's parameters. In each variant, one spot contains one
// of the names listed for its kind.
func trials(w *world, m *rpcschema.Method, names map[string]string, each func(s spot, with func(v any) p)) {
	least := sample.Maker{Document: rpcschema.Default(), Release: w.release, Names: names}
	full := least
	full.Full = true
	for _, param := range m.Params {
		if !param.Schema.Has(w.release) {
			continue
		}
		list := w.tenancy.plans.Nodes(param.Schema)
		found := spots(w.tenancy, list, param.Name, least.Value(param.Schema))
		for _, s := range spots(w.tenancy, list, param.Name, full.Value(param.Schema)) {
			if !slices.ContainsFunc(found, func(f spot) bool { return f.path == s.path && f.kind == s.kind }) {
				found = append(found, s)
			}
		}
		for _, s := range found {
			each(s, func(v any) p {
				params := least.Params(m)
				for _, group := range m.OneOf {
					if slices.Contains(group, param.Name) {
						for _, other := range group {
							delete(params, other)
						}
					}
				}
				params[param.Name] = s.put(v)
				return plainAddresses(params)
			})
		}
	}
}

// plainAddresses converts sample addresses to the form that a tenant may use.
func plainAddresses(params p) p {
	if a, ok := params["listen_address"].(map[string]any); ok && a["traddr"] != "127.0.0.2" {
		params["listen_address"] = p{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4420"}
	}
	return params
}

// No parameter of any method accepts the name of another tenant's object, in any spelling, and the
// response does not reveal whether the object exists.
func TestOtherTenantsObjectsStayInvisible(t *testing.T) {
	for _, release := range []string{"v26.05", "v24.01"} {
		t.Run(release, func(t *testing.T) {
			nothingOfAnother(t, newWorld(t, release, allowAll))
		})
	}
	t.Run("real", func(t *testing.T) { nothingOfAnother(t, realWorld(t, allowAll)) })
}

// allowAll removes all restrictions on a tenant except those on names.
func allowAll(tenant *Tenant) { tenant.Allow = rpcschema.Openings }

func nothingOfAnother(t *testing.T, w *world) {
	red, blue := w.settle()
	before := w.stateOf(blue)
	var tried, passes int
	methods := map[string]bool{}
	for _, m := range rpcschema.Default().Methods() {
		if !m.Has(w.release) || m.Name == "spdk_kill_instance" {
			continue
		}
		trials(w, m, own(red), func(s spot, with func(v any) p) {
			for _, name := range foreign(blue, s.kind) {
				where := fmt.Sprintf("%s %s = %s", m.Name, s.path, name)
				w.sent = nil
				result, err := w.call("alice", m.Name, with(name))
				var invalid rpcschema.Violations
				if errors.As(err, &invalid) {
					continue // the parameter does not accept this name
				}
				tried++
				methods[m.Name] = true
				ghost, ghostErr := w.call("alice", m.Name, with(gone(name)))
				// A real subsystem may still be busy with the previous call, whatever names the
				// calls contain. Therefore, an object's existence counts as revealed only if every
				// attempt shows a difference.
				for range 5 {
					if outcome(ghost, ghostErr, gone(name)) == outcome(result, err, name) {
						break
					}
					result, err = w.call("alice", m.Name, with(name))
					ghost, ghostErr = w.call("alice", m.Name, with(gone(name)))
				}
				assert.Equal(t, outcome(ghost, ghostErr, gone(name)), outcome(result, err, name), where)
				if !plan.IsObject(s.kind) {
					var refused *Refusal
					assert.ErrorAs(t, err, &refused, where)
				}
				for _, c := range w.sent {
					text, err := json.Marshal(c.params)
					require.NoError(t, err)
					for _, secret := range blue.secrets() {
						assert.NotContains(t, strings.ToLower(string(text)), strings.ToLower(secret), where)
					}
				}
			}
			if w.tenancy.plans.Of(m.Name).Refusal == "" && plan.IsObject(s.kind) {
				// The same call is admitted if it contains the tenant's own names.
				params, err := decoded(with(own(red)[s.kind]))
				require.NoError(t, err)
				grant, err := w.tenancy.Of("alice").Admit(t.Context(), m, params, w.ask)
				if assert.NoError(t, err, "%s %s", m.Name, s.path) {
					assert.Zero(t, grant.Hidden(), "%s %s", m.Name, s.path)
					grant.Close()
					passes++
				}
			}
		})
	}
	assert.Equal(t, before, w.stateOf(blue), "no object of the other tenant has changed")
	t.Logf("%d methods, %d calls that name another tenant's object, %d parameters that accept the tenant's own names", len(methods), tried, passes)
	assert.Greater(t, tried, 700)
	assert.Greater(t, passes, 60)
}

// foreign returns blue's names of this kind.
func foreign(blue things, kind string) []string {
	if name := plan.Created(kind); name != "" {
		return append(blue.names(name), "blue-new", "lvs-blue", "nqn.2016-06.io.spdk:blue-new", "iqn.2016-06.io.spdk:blue-new")
	}
	if kind == "host-nqn" {
		return []string{lostHost}
	}
	return blue.names(kind)
}

// stateOf returns the objects of one tenant as an administrator sees them.
func (w *world) stateOf(x things) string {
	var b strings.Builder
	for _, c := range []sent{
		{"bdev_lvol_get_lvols", p{"lvs_name": x.lvs}},
		{"bdev_lvol_get_lvstores", p{"lvs_name": x.lvs}},
		{"bdev_get_bdevs", p{"name": x.volume}},
		{"bdev_get_bdevs", p{"name": x.malloc}},
		{"nvmf_get_subsystems", p{"nqn": x.nqn}},
		{"iscsi_get_target_nodes", nil},
	} {
		fmt.Fprintf(&b, "%s\n", w.must("", c.method, c.params))
	}
	return b.String()
}
