package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A tenantsTarget has volumes whose statistics a tenant may query only by name. Like a real target,
// it refuses parameters that violate the schema.
type tenantsTarget struct {
	volumes int
	release rpcschema.Release
	calls   int // number of bdev_get_iostat calls
	deleted int // number of lists that contain a deleted volume
}

func (f *tenantsTarget) Call(_ context.Context, method string, params, result any) error {
	answer := func(v any) error {
		text, err := json.Marshal(v)
		*result.(*json.RawMessage) = text
		return err
	}
	if method == "bdev_lvol_get_lvols" {
		list := make([]map[string]string, f.volumes)
		for i := range list {
			list[i] = map[string]string{"uuid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}
		}
		return answer(list)
	}
	given, _ := params.(map[string]any)
	if given == nil {
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.Denied}
	}
	f.calls++
	names, _ := given["names"].([]string)
	if name, ok := given["name"].(string); ok {
		names = []string{name}
	}
	var plain map[string]any // the parameters as they were sent
	text, _ := json.Marshal(given)
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	if err := rpcschema.Default().ValidateParams(method, plain, f.release); err != nil {
		return err
	}
	var bdevs []map[string]string
	if f.deleted > 0 {
		f.deleted--
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice}
	}
	for _, n := range names {
		bdevs = append(bdevs, map[string]string{"name": n})
	}
	return answer(map[string]any{"tick_rate": 1, "ticks": 2, "bdevs": bdevs})
}

// A tenant receives the statistics of all its volumes, even if there are more volumes than SPDK
// accepts in one call.
func TestIostatShowsManyVolumes(t *testing.T) {
	for _, c := range []struct {
		release        string
		volumes, calls int
	}{{"v26.05", 1, 1}, {"v26.05", 1024, 1}, {"v26.05", 2500, 3}, {"v24.01", 3, 3}} {
		f := &tenantsTarget{volumes: c.volumes, release: rpcschema.MustRelease(c.release)}
		raw, err := (&remote{caller: f, timeout: time.Minute}).askIO(t.Context(), f.release)
		require.NoError(t, err, "%+v", c)
		var got ioStat
		require.NoError(t, json.Unmarshal(raw, &got))
		assert.Len(t, got.Bdevs, c.volumes)
		assert.Equal(t, c.calls, f.calls)
		assert.Equal(t, "1", string(got.TickRate))
	}
}

// If a volume is deleted between the list and the query, the tenant still receives the statistics
// of its other volumes.
func TestIostatSurvivesADeletedVolume(t *testing.T) {
	f := &tenantsTarget{volumes: 3, release: rpcschema.MustRelease("v26.05"), deleted: 1}
	raw, err := (&remote{caller: f, timeout: time.Minute}).askIO(t.Context(), f.release)
	require.NoError(t, err)
	var got ioStat
	require.NoError(t, json.Unmarshal(raw, &got))
	assert.Len(t, got.Bdevs, 3)
	f.deleted = 9
	_, err = (&remote{caller: f, timeout: time.Minute}).askIO(t.Context(), f.release)
	require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
}
