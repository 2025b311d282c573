package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (w *world) method(name string) *rpcschema.Method {
	m, ok := rpcschema.Default().Method(name)
	require.True(w.t, ok, name)
	return m
}

const volumeUUID = "11111111-2222-4333-8444-555555555555"

// bdevList returns a list of one bdev with driver-specific data, as in SPDK's response.
func bdevList(name, data string) string {
	return fmt.Sprintf(`[{"name": %q, "aliases": [], "product_name": "x", "block_size": 512, "num_blocks": 8, "uuid": %q, "driver_specific": %s}]`, name, volumeUUID, data)
}

// Each bdev driver reports the names of base bdevs differently.
func TestBaseBdevsAreReadForEachDriver(t *testing.T) {
	for data, want := range map[string][]string{
		`{}`:                          {},
		`{"malloc": {"name": "a"}}`:   {},
		`{"base_bdev_name": "a"}`:     {"a"},
		`{"gpt": {"base_bdev": "a"}}`: {"a"},
		`{"ocf": {"cache": "a", "core_device": {"name": "c", "core_device": "b"}}}`:                     {"a", "b"},
		`{"split": [{"base_bdev": "a"}, {"base_bdev": "b"}]}`:                                           {"a", "b"},
		`{"raid": {"base_bdevs_list": [{"name": "a", "uuid": "u"}, {"name": null}, {"name": "b"}]}}`:    {"a", "b"},
		`{"raid": {"base_bdevs_list": "all"}}`:                                                          {},
		`{"raid": {"base_bdevs_list": [{"uuid": "u"}, "a"]}}`:                                           {},
		`{"ftl": {"base_bdev": "a", "cache_device": "b"}}`:                                              {"a", "b"},
		`{"raid": {"base_bdevs_list": [{"name": "a"}], "superblock": true}, "passthru": {"name": "x"}}`: {"a"},
	} {
		ask := func(context.Context, string, map[string]any) (json.RawMessage, error) {
			return json.RawMessage(bdevList("b", data)), nil
		}
		got, err := askBases(t.Context(), ask, "b")
		require.NoError(t, err, data)
		assert.Equal(t, want, got, data)
	}
}

func TestUnreadableBaseBdevsAreReported(t *testing.T) {
	ask := func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return json.RawMessage(`[{"name": "b"}, 1]`), nil
	}
	_, err := askBases(t.Context(), ask, "b")
	require.Error(t, err)
}

// A chain maps each bdev to its base bdevs, and responds to queries for them.
type chain map[string][]string

func (c chain) ask(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
	name := params["name"].(string)
	below, ok := c[name]
	if !ok {
		return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice}
	}
	list := []map[string]string{}
	for _, b := range below {
		list = append(list, map[string]string{"name": b})
	}
	text, err := json.Marshal(list)
	return json.RawMessage(bdevList(name, `{"raid": {"base_bdevs_list": `+string(text)+`}}`)), err
}

// A bdev based on a logical volume, at any depth, belongs to no tenant, because a host may have
// written its metadata.
func TestBdevsOnVolumesBelongToNoTenant(t *testing.T) {
	c := chain{
		"raid": {"disk1", "disk2"}, "disk1": {}, "disk2": {}, "nested": {"disk1", volumeUUID}, "deep": {"disk1", "nested"}, "alias": {"lvs0/v"},
		"loop": {"loop"}, "half": {"missing"},
	}
	for i := range maxDepth + 1 {
		c[fmt.Sprint("level", i)] = []string{fmt.Sprint("level", i+1)}
	}
	c[fmt.Sprint("level", maxDepth+1)] = []string{}
	for name, want := range map[string]bool{
		"disk1": false, "raid": false, "nested": true, "deep": true, "alias": true, "loop": true, "half": false, "missing": false,
		volumeUUID: true, "lvs0/v": true, "level1": false, "level0": true,
	} {
		on, err := (&ownershipCheck{ask: c.ask}).onVolume(t.Context(), []string{name}, 0)
		require.NoError(t, err, name)
		assert.Equal(t, want, on, name)
	}
	failing := func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return nil, errors.New("struck")
	}
	on, err := (&ownershipCheck{ask: failing}).onVolume(t.Context(), []string{"disk1"}, 0)
	require.Error(t, err)
	assert.True(t, on, "an unknown bdev counts as written by a host")
}

// A tenant can neither see nor use a RAID that matches its globs but is based on a volume, whether
// it uses the RAID's name or UUID.
func TestTenantsCannotUseRAIDsOnVolumes(t *testing.T) {
	w := newWorld(t, "v26.05")
	m := w.method("bdev_set_qos_limit")
	for data, allowed := range map[string]bool{
		`{"raid": {"base_bdevs_list": [{"name": "disk1"}]}}`:                              true,
		`{"raid": {"base_bdevs_list": [{"name": "disk1"}, {"name": "lvs-blue/victim"}]}}`: false,
	} {
		for _, name := range []string{"red-raid", volumeUUID} {
			ask := func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
				if params["name"] == name {
					return json.RawMessage(bdevList("red-raid", data)), nil
				}
				return json.RawMessage(bdevList("disk1", "{}")), nil
			}
			params, err := decoded(p{"name": name, "rw_ios_per_sec": 1000})
			require.NoError(t, err)
			g, err := w.tenancy.Of("alice").Admit(t.Context(), m, params, ask)
			require.NoError(t, err, data)
			assert.Equal(t, allowed, g.Params["name"] == name, "%s %s", name, data)
			g.Close()
		}
	}
}

// A list item that does not contain the name of its object belongs to no tenant.
func TestItemsWithoutNamesAreOmitted(t *testing.T) {
	w := newWorld(t, "v26.05")
	for method, items := range map[string]string{
		"bdev_get_bdevs":         `[{"product_name": "canary", "num_blocks": 8}]`,
		"bdev_lvol_get_lvols":    `[{"is_thin_provisioned": true, "is_snapshot": false}]`,
		"bdev_lvol_get_lvstores": `[{"free_clusters": 4711, "cluster_size": 4096}]`,
		"nvmf_get_subsystems":    `[{"subtype": "NVMe", "hosts": [{"nqn": "canary"}]}]`,
	} {
		g, err := w.tenancy.Of("alice").Admit(t.Context(), w.method(method), nil, w.ask)
		require.NoError(t, err, method)
		result, err := g.Answer(t.Context(), json.RawMessage(items), nil)
		require.NoError(t, err, method)
		assert.JSONEq(t, `[]`, string(result), method)
		g.Close()
	}
}
