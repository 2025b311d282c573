package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A slowTarget simulates a target with an lvstore that contains 1 MiB volumes. Each query for a
// volume takes some time, or gets no response.
type slowTarget struct {
	ids   []string
	takes time.Duration // 0 for no response
}

func (f slowTarget) Call(ctx context.Context, method string, params, result any) error {
	var answer string
	switch method {
	case "spdk_get_version":
		answer = `{"version": "SPDK v26.05", "fields": {"major": 26, "minor": 5, "patch": 0, "suffix": ""}}`
	case "bdev_lvol_get_lvols":
		for i, id := range f.ids {
			answer += fmt.Sprintf(`, {"alias": "lvs0/v%d", "uuid": %q, "name": "v%d", "is_thin_provisioned": true, "is_snapshot": false, "is_clone": false, "is_esnap_clone": false, "is_degraded": false, "lvs": {"name": "lvs0", "uuid": %q}}`, i, id, i, f.ids[0])
		}
		answer = "[" + answer[2:] + "]"
	case "bdev_get_bdevs":
		var answered <-chan time.Time
		if f.takes > 0 {
			answered = time.After(f.takes)
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return ctx.Err()
		}
		text, err := json.Marshal(params)
		if err != nil {
			return err
		}
		var named struct{ Name string }
		if err := json.Unmarshal(text, &named); err != nil {
			return err
		}
		answer = fmt.Sprintf(`[{"name": %q, "uuid": %q, "aliases": ["lvs0/x"], "block_size": 4096, "num_blocks": 256, "driver_specific": {"lvol": {"thin_provision": true, "base_bdev": "disk"}}}]`, named.Name, named.Name)
		if named.Name == "disk" {
			answer = `[{"name": "disk", "product_name": "Malloc disk", "driver_specific": {}}]`
		}
	default:
		return fmt.Errorf("unexpected call of %s", method)
	}
	return json.Unmarshal([]byte(answer), result)
}

// Reading the sizes of many volumes may take any amount of time while the target keeps responding.
// If the target stops responding, the read fails.
func TestSizesAreReadWhileTheTargetResponds(t *testing.T) {
	ids := make([]string, 200)
	for i := range ids {
		ids[i] = uuid.NewString()
	}
	for takes, fails := range map[time.Duration]bool{noAnswer / 2: false, 0: true} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				target := NewTarget(Config{Config: export.Config{Name: "t0"}, Space: Space{Overcommit: 1}})
				s := target.Service(spdkrpc.NewClient(slowTarget{ids, takes}))
				used, err := s.Usage(t.Context(), Store{Base: "disk", UUID: ids[0], Name: "lvs0", ClusterBytes: MiB, TotalBytes: 1 << 40})
				if fails {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorContains(t, err, "no response within 1m0s")
					return
				}
				require.NoError(t, err)
				assert.EqualValues(t, len(ids)*MiB, used.PromisedBytes)
			})
		})
	}
}
