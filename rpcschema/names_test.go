package rpcschema

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamesInACallAreListed(t *testing.T) {
	for _, c := range []struct {
		method, params string
		want           []Name
	}{
		{"bdev_lvol_create", `{"lvol_name":"v","lvs_name":"lvs0","size_in_mib":8}`, []Name{{"lvol-name", "v"}, {"lvstore", "lvs0"}}},
		{"bdev_lvol_create", `{"lvol_name":"v","lvs_name":"","size":8,"no":"x"}`, []Name{{"lvol-name", "v"}}},
		{"nvmf_subsystem_add_listener", `{"nqn":"nqn.a","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"192.0.2.1","trsvcid":"4420"}}`,
			[]Name{{"nqn", "nqn.a"}, {"address", "192.0.2.1:4420"}}},
		{"nvmf_subsystem_add_ns", `{"nqn":"nqn.a","namespace":{"bdev_name":"m0","nsid":1}}`, []Name{{"nqn", "nqn.a"}, {"bdev", "m0"}}},
		{"bdev_raid_create", `{"name":"r","raid_level":"raid1","base_bdevs":["a","b"]}`, []Name{{"new-bdev", "r"}, {"bdev", "a"}, {"bdev", "b"}}},
		{"iscsi_create_portal_group", `{"tag":7,"portals":[{"host":"192.0.2.1","port":"3260"}]}`, []Name{{"address", "192.0.2.1:3260"}}},
		{"iscsi_target_node_add_pg_ig_maps", `{"name":"iqn.a","pg_ig_maps":[{"pg_tag":7,"ig_tag":8}]}`, []Name{{"iqn", "iqn.a"}, {"initiator-group", "8"}, {"portal-group", "7"}}},
		{"bdev_get_bdevs", `{"name":{"a":"b"}}`, nil},
		{"spdk_get_version", ``, nil},
		{"no_such_method", `{"name":"a"}`, nil},
	} {
		var p map[string]any
		if c.params != "" {
			p = params(t, c.params)
		}
		got, more := Default().Names(c.method, p, 16)
		assert.ElementsMatch(t, c.want, got, c.method)
		assert.Zero(t, more)
	}
}

func TestNumberOfNamesIsLimited(t *testing.T) {
	var bases []any
	for i := range 100 {
		bases = append(bases, fmt.Sprint("b", i))
	}
	list, more := Default().Names("bdev_raid_create", map[string]any{"name": "r", "base_bdevs": bases}, 3)
	assert.Len(t, list, 3)
	assert.Equal(t, 98, more)
}

func TestNamesOmitSecrets(t *testing.T) {
	d, err := Load([]byte(`{"methods":[{"name":"m","params":[
		{"name":"key","schema":{"type":"string","x-spdk-resource":"key","x-spdk-sensitive":true}},
		{"name":"hush","schema":{"$ref":"#/components/schemas/S"}},
		{"name":"either","schema":{"oneOf":[{"type":"object","properties":{"b":{"type":"string","x-spdk-resource":"bdev"}}},{"type":"string","x-spdk-resource":"bdev"}]}},
		{"name":"count","schema":{"type":"integer","x-spdk-resource":"tag"}}]}],
		"components":{"schemas":{"S":{"x-spdk-sensitive":true,"type":"object","properties":{"b":{"type":"string","x-spdk-resource":"bdev"}}}}}}`))
	require.NoError(t, err)
	list, _ := d.Names("m", map[string]any{"key": "k", "hush": map[string]any{"b": "s"}, "either": "e", "count": json.Number("5")}, 9)
	assert.Equal(t, []Name{{"bdev", "e"}, {"tag", "5"}}, list)
	list, _ = d.Names("m", map[string]any{"either": map[string]any{"b": "x"}, "hush": Redacted, "count": Redacted}, 9)
	assert.Equal(t, []Name{{"bdev", "x"}}, list)
}

func BenchmarkNames(b *testing.B) {
	d := Default()
	p := params(b, `{"nqn":"nqn.a","namespace":{"bdev_name":"m0","nsid":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		d.Names("nvmf_subsystem_add_ns", p, 16)
	}
}
