package tenancy

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// SPDK rounds the size of a volume up to whole clusters.
func TestSizesAreRoundedToClusters(t *testing.T) {
	s := store{}
	s.ClusterSize = 4 * mib
	for size, want := range map[uint64]uint64{
		0: 0, 1: 4 * mib, 4*mib - 1: 4 * mib, 4 * mib: 4 * mib, 4*mib + 1: 8 * mib,
		math.MaxUint64: math.MaxUint64, math.MaxUint64 - 4*mib + 1: math.MaxUint64 - 4*mib + 1, math.MaxUint64 - 4*mib + 2: math.MaxUint64,
	} {
		assert.Equal(t, want, s.round(size), size)
	}
	assert.EqualValues(t, 5, store{}.round(5), "the lvstore is unknown")
}

// If there is a quota, the size in a call must be an integer. Otherwise, the size could not be
// counted.
func TestSizesMustBeWholeNumbers(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib})
	for name, c := range map[string]struct {
		params p
		want   uint64
		fails  bool
	}{
		"MiB":                       {p{"size_in_mib": json.Number("3")}, 3 * mib, false},
		"bytes":                     {p{"size": json.Number("5")}, 5, false},
		"the larger of two sizes":   {p{"size": json.Number("5"), "size_in_mib": json.Number("1")}, mib, false},
		"overflow":                  {p{"size_in_mib": json.Number("17592186044416")}, math.MaxUint64, false},
		"the largest possible size": {p{"size_in_mib": json.Number("17592186044415")}, math.MaxUint64 - mib + 1, false},
		"an exponent":               {p{"size_in_mib": json.Number("1e3")}, 0, true},
		"a fraction":                {p{"size": json.Number("1.5")}, 0, true},
		"negative":                  {p{"size": json.Number("-1")}, 0, true},
		"not a number":              {p{"size": "1"}, 0, true},
		"none":                      {p{}, 0, true},
	} {
		g := &Grant{Params: c.params, scope: w.tenancy.Of("alice"), method: w.method("bdev_lvol_create")}
		got, err := g.requested()
		if c.fails {
			var refused *Refusal
			require.ErrorAs(t, err, &refused, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
}

// A call must not contain the name of a missing lvstore, because another client could create an
// lvstore with this name before SPDK executes the call.
func TestMissingLvstoresAreReplacedWithUnusedNames(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib})
	_, err := w.call("alice", "bdev_lvol_create", p{"lvol_name": "a", "size_in_mib": 4, "lvs_name": "lvs-red2"})
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	sent := w.sent[len(w.sent)-1]
	assert.Equal(t, "bdev_lvol_create", sent.method)
	assert.NotEqual(t, "lvs-red2", sent.params["lvs_name"])
	assert.NotContains(t, sent.params, "uuid")

	_, err = w.call("alice", "bdev_lvol_create", p{"lvol_name": "a", "size_in_mib": 4, "uuid": "11111111-2222-4333-8444-555555555555"})
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	sent = w.sent[len(w.sent)-1]
	assert.NotEqual(t, "11111111-2222-4333-8444-555555555555", sent.params["uuid"])
	assert.NotContains(t, sent.params, "lvs_name")
}

// Calls that SPDK itself refuses do not count.
func TestResizingANonVolumeIsNotCounted(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib})
	w.must("", "bdev_malloc_create", p{"name": "red-malloc", "num_blocks": 2048, "block_size": 512})
	_, err := w.call("alice", "bdev_lvol_resize", p{"name": "red-malloc", "size_in_mib": 4000})
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
	var over *QuotaError
	require.NotErrorAs(t, err, &over)
}

// If the response to the query for a bdev's size does not describe exactly one bdev, the call is
// refused.
func TestCallsWithAmbiguousBdevSizesAreRefused(t *testing.T) {
	w := emptyWorld(t, "v26.05", Quota{Bytes: 64 * mib})
	require.NoError(t, w.create("a", 4))
	g := func() *Grant {
		return &Grant{Params: p{"name": "lvs-red/a"}, scope: w.tenancy.Of("alice"), method: w.method("bdev_lvol_resize")}
	}
	whole, err := w.raw(t.Context(), "bdev_get_bdevs", p{"name": "lvs-red/a"})
	require.NoError(t, err)
	answer := string(whole)
	ask := func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return json.RawMessage(answer), nil
	}
	grant := g()
	b, err := grant.pin(t.Context(), ask, grant.Params, "name")
	require.NoError(t, err)
	assert.EqualValues(t, 4*mib, b.size())
	assert.Equal(t, b.name, grant.Params["name"], "the call names it by UUID")
	item := answer[1 : len(answer)-1]
	for name, text := range map[string]string{"two": "[" + item + "," + item + "]", "none": "[]", "no list": item, "no JSON": "["} {
		answer = text
		grant := g()
		_, err := grant.pin(t.Context(), ask, grant.Params, "name")
		require.Error(t, err, name)
	}
}
