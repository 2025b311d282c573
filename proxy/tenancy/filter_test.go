package tenancy

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/tenancy/plan"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/jsonwalk"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// mark is part of the name of every object that does not belong to red.
const mark = "f0e1"

var (
	redNames = map[string]string{
		"bdev": "red-disk", "lvstore": "lvs-red", "lvstore-uuid": "aaaaaaaa-0000-4000-8000-00000000000a", "nqn": "nqn.2016-06.io.spdk:red-1",
		"iqn": "iqn.2016-06.io.spdk:red-1", "key": "red-key", "host-nqn": redHost, "lvol-name": "vol", "initiator": "ANY",
	}
	otherNames = map[string][]string{
		"bdev":         {mark, "lvs-" + mark + "/x", "aaaaaaaa-0000-4000-8000-00000000" + mark},
		"lvstore-uuid": {"aaaaaaaa-0000-4000-8000-00000000" + mark},
		"nqn":          {"nqn.2016-06.io.spdk:" + mark}, "iqn": {"iqn.2016-06.io.spdk:" + mark}, "host-nqn": {"nqn.2016-06.io.spdk:" + mark},
	}
)

// oracle responds to the filter's queries like a target without bdevs and with one lvstore, which
// belongs to red.
func oracle(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
	switch {
	case method == "bdev_lvol_get_lvstores":
		return json.RawMessage(`[{"uuid":"aaaaaaaa-0000-4000-8000-00000000000a","name":"lvs-red","base_bdev":"disk"},{"uuid":"aaaaaaaa-0000-4000-8000-00000000f0e1","name":"lvs-blue","base_bdev":"disk"}]`), nil
	case method == "bdev_get_bdevs" && params == nil:
		return json.RawMessage(`[]`), nil
	}
	return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice, Code: -19}
}

// spoil randomly changes a value that conforms to the schema. It replaces some names with those of
// other owners, changes the types of some values, and adds members that the schema does not
// describe.
func spoil(t *Tenancy, r *rand.Rand, list []plan.Node, v any) any {
	if _, text := v.(string); !text && !plan.Free(list, "") && r.IntN(40) == 0 {
		other := []any{mark, p{mark: mark}, p{"not_described": mark}, []any{mark}, nil, json.Number("7")}[r.IntN(6)]
		// in a list of strings, the other name would merely be another string
		if _, array := v.([]any); !array {
			return other
		}
	}
	if kinds := plan.KindsOf(list, v); len(kinds) > 0 {
		_, text := v.(string)
		switch kind := kinds[r.IntN(len(kinds))]; {
		case plan.IsInner(kind):
		case kind == "address" && !text:
			return p{"trtype": "TCP", "adrfam": "IPv4", "traddr": []string{"127.0.0.1", mark}[r.IntN(2)], "trsvcid": "4420"}
		case text && r.IntN(3) == 0:
			if others := otherNames[kind]; len(others) > 0 {
				return others[r.IntN(len(others))]
			}
			return mark
		case text && redNames[kind] == "":
			return mark // such an object cannot belong to a tenant
		}
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		spoilt := p{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below, _ := t.plans.Member(list, name)
			spoilt[name] = spoil(t, r, below, v[name])
		}
		if store, ok := spoilt["lvol_store_uuid"].(string); ok && !strings.Contains(store, mark) {
			// otherwise, all names of the bdev would belong to the tenant
			delete(spoilt, "lvol_store_uuid")
		}
		for _, n := range list {
			if r.IntN(3) == 0 && n.Additional.Schema == nil {
				spoilt["not_described"] = []any{mark, p{"not_described": mark}}[r.IntN(2)]
			}
		}
		return spoilt
	case []any:
		spoilt := []any{}
		for range r.IntN(4) {
			if len(v) > 0 {
				spoilt = append(spoilt, spoil(t, r, t.plans.Items(list), v[0]))
			}
		}
		return spoilt
	}
	return v
}

// FuzzFilter generates results of every method in which the tenant's objects are mixed with others'
// objects and with values that the schema does not describe. Both contain a mark, which the filter
// must remove.
func FuzzFilter(f *testing.F) {
	for seed := range uint64(400) {
		f.Add(seed, seed*7919)
	}
	tenancy, err := New([]Tenant{redTenant(), blueTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), nil)
	require.NoError(f, err)
	methods := slices.DeleteFunc(rpcschema.Default().Methods(), func(m *rpcschema.Method) bool {
		p := tenancy.plans.Of(m.Name)
		return p.Refusal != "" || p.Open || p.Raw
	})
	f.Fuzz(func(t *testing.T, seed, more uint64) {
		r := rand.New(rand.NewPCG(seed, more))
		m := methods[r.IntN(len(methods))]
		maker := sample.Maker{Document: rpcschema.Default(), Release: rpcschema.MustRelease("v26.05"), Full: true, Extreme: r.IntN(2) == 0, Names: redNames}
		list := tenancy.plans.Nodes(m.Result.Schema)
		value := maker.Result(m)
		if m.Name == "bdev_get_bdevs" || m.Name == "bdev_lvol_get_lvols" {
			for _, item := range value.([]any) { // these lists reveal who owns a UUID
				delete(item.(map[string]any), "uuid")
			}
			uuids := otherNames["bdev"]
			otherNames["bdev"] = uuids[:2]
			defer func() { otherNames["bdev"] = uuids }()
		}
		text, err := jsonrpc.Marshal(spoil(tenancy, r, list, value))
		require.NoError(t, err)
		g := redGrant(tenancy, m, r.IntN(2) == 0)
		if m.Mutates {
			g.owned = true
			if _, scalar := maker.Result(m).(string); scalar {
				return // the name of the object that this call created: nothing to filter
			}
		}
		kept, err := g.Answer(t.Context(), text, nil)
		if err != nil {
			var refused *Refusal
			if !assert.ErrorAs(t, err, &refused) {
				t.Log(m.Name, string(text))
			}
			return
		}
		assert.NotContains(t, strings.ToLower(string(kept)), mark, "%s: %s", m.Name, text)
		want, seen, err := referenceOf(t.Context(), redGrant(tenancy, m, g.owned), text)
		require.NoError(t, err)
		require.True(t, seen)
		same(t, want, kept, m.Name, text)
	})
}

// If a tenant owns everything in a result, the filter keeps the whole result.
func TestFilterKeepsTheTenantsOwnResults(t *testing.T) {
	tenancy, err := New([]Tenant{redTenant()}, map[string]string{"alice": "red"}, rpcschema.Default(), nil)
	require.NoError(t, err)
	scope := tenancy.Of("alice")
	for method, result := range map[string]string{
		"nvmf_get_subsystems": `[{"nqn":"nqn.2016-06.io.spdk:red-1","subtype":"NVMe","listen_addresses":[{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}],` +
			`"allow_any_host":false,"hosts":[{"nqn":"` + redHost + `"}],"serial_number":"S","model_number":"M","max_namespaces":32,"min_cntlid":1,"max_cntlid":65519,` +
			`"namespaces":[{"nsid":1,"bdev_name":"red-disk","name":"red-disk","nguid":"00","uuid":"aaaaaaaa-0000-4000-8000-000000000001"}]}]`,
		"bdev_lvol_get_lvstores": `[{"uuid":"aaaaaaaa-0000-4000-8000-00000000000a","name":"lvs-red","base_bdev":"red-disk","total_data_clusters":18446744073709551615,"free_clusters":1,"block_size":512,"cluster_size":4194304}]`,
		"bdev_get_iostat":        `{"tick_rate":2100000000,"ticks":9007199254740993,"bdevs":[{"name":"red-disk","bytes_read":1,"io_error":{"failed":1}}]}`,
	} {
		m, _ := rpcschema.Default().Method(method)
		g := &Grant{scope: scope, method: m, plan: tenancy.plans.Of(method), ownership: &ownershipCheck{scope: scope, ask: oracle}}
		kept, err := g.Answer(t.Context(), json.RawMessage(result), nil)
		require.NoError(t, err)
		assert.JSONEq(t, result, string(kept), method)
		assert.NotContains(t, string(kept), "e+", "numbers keep their digits")
	}
}

// The typed client can read the filtered results of the sample methods.
func TestFilteredResultsCanBeRead(t *testing.T) {
	w := newWorld(t, "v26.05")
	red, _ := w.settle()
	var subsystems []spdkrpc.NVMfSubsystem
	require.NoError(t, json.Unmarshal(w.must("alice", "nvmf_get_subsystems", nil), &subsystems))
	require.Len(t, subsystems, 1)
	assert.Equal(t, red.nqn, subsystems[0].NQN)
	var bdevs []spdkrpc.BdevInfo
	require.NoError(t, json.Unmarshal(w.must("alice", "bdev_get_bdevs", nil), &bdevs))
	require.Len(t, bdevs, 3)
}

// A result that is just a number or boolean belongs to no tenant. A string that names no object
// could belong to any tenant, so only the owner of the call's objects receives it.
func TestSingleValueResultsAreFiltered(t *testing.T) {
	w := newWorld(t, "v26.05")
	texts, switches := 0, 0
	for _, m := range filtered(w.tenancy) {
		form := w.tenancy.plans.Of(m.Name).Result
		seen := func(text string, owned bool) bool {
			_, err := redGrant(w.tenancy, m, owned).filter(t.Context(), json.RawMessage(text))
			return err == nil
		}
		plain := func(typ jsonwalk.Type) bool { return form.Fits[typ] && !form.Sensitive && len(form.Kinds[typ]) == 0 }
		if plain(jsonwalk.Bool) {
			switches++
			assert.True(t, seen("true", false), m.Name)
		}
		if plain(jsonwalk.String) {
			texts++
			assert.False(t, seen(`"blue"`, false), m.Name)
			assert.True(t, seen(`"red"`, true), m.Name)
		}
	}
	assert.NotZero(t, switches)
	assert.NotZero(t, texts)
}
