package layers

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const volume = "2f1ab9d4-3f5e-4f5b-9f5f-0a8e3d0a7c11"

func TestVolumesAreDistinguishedFromPartitions(t *testing.T) {
	bdevs := map[string]string{
		"disk": `{"driver_specific":{"aio":{}}}`, "dev/sdb": "{}", "lvs0/v": `{"driver_specific":{"lvol":{}}}`,
		"diskp1": `{"driver_specific":{"gpt":{"base_bdev":"disk"}}}`, "in": `{"driver_specific":{"gpt":{"base_bdev":"diskp1"}}}`,
		"on-volume": `{"driver_specific":{"gpt":{"base_bdev":"lvs0/v"}}}`, "itself": `{"driver_specific":{"gpt":{"base_bdev":"itself"}}}`,
	}
	for name, c := range map[string]struct{ kept, disks []string }{
		"disk": {kept: []string{"disk"}}, "dev/sdb": {kept: []string{"dev/sdb"}}, "lvs0/v": {}, "on-volume": {}, "itself": {},
		"diskp1": {kept: []string{"diskp1"}, disks: []string{"disk"}}, "in": {kept: []string{"in"}, disks: []string{"diskp1", "disk"}},
		// the target lacks these bdevs
		volume: {}, volume + "p1": {}, "lvs0/other": {}, "late": {kept: []string{"late"}},
	} {
		l := New(func(_ context.Context, method string, params map[string]any) (json.RawMessage, error) {
			found, exists := bdevs[params["name"].(string)]
			if !exists {
				return nil, &spdkrpc.Error{Method: method, Kind: spdkrpc.NoSuchDevice}
			}
			return json.RawMessage("[" + found + "]"), nil
		})
		kept, err := l.WithoutVolumes(t.Context(), []string{name})
		require.NoError(t, err, name)
		assert.Equal(t, c.kept, kept, name)
		assert.ElementsMatch(t, c.disks, l.Disks, name)
	}
}

func TestUnknownBdevCausesAnError(t *testing.T) {
	for _, answer := range []string{"", "{}"} {
		l := New(func(context.Context, string, map[string]any) (json.RawMessage, error) {
			if answer == "" {
				return nil, errors.New("struck")
			}
			return json.RawMessage(answer), nil
		})
		_, err := l.WithoutVolumes(t.Context(), []string{"disk"})
		require.ErrorContains(t, err, "bdev_get_bdevs of disk")
	}
}
