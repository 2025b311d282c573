package volume

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A grownChecker simulates a proxy that refuses to delete a snapshot if the snapshot is smaller
// than its only clone.
type grownChecker struct {
	freezer
	b *testService
}

func (g *grownChecker) Call(ctx context.Context, method string, params, result any) error {
	if method == "spdkgate_lvol_delete" {
		text, err := json.Marshal(params)
		if err != nil {
			return err
		}
		var p spdkrpc.SpdkgateLvolDeleteParams
		if err := json.Unmarshal(text, &p); err != nil {
			return err
		}
		grown, err := g.hasGrown(ctx, p.Name)
		if err != nil {
			return err
		}
		if grown {
			return &spdkrpc.Error{Method: method, Kind: spdkrpc.InUse, Code: -32009}
		}
	}
	return g.freezer.Call(ctx, method, params, result)
}

func (g *grownChecker) hasGrown(ctx context.Context, snapshot string) (bool, error) {
	direct := g.b.Target.Service(g.b.rpc)
	snap, err := direct.lookUp(ctx, snapshot)
	if err != nil || len(snap.Clones) != 1 {
		return false, ignore(err, ErrNotFound)
	}
	clone, err := direct.lookUp(ctx, snap.Store+"/"+snap.Clones[0])
	return clone.SizeBytes > snap.SizeBytes, err
}

// Bases of expanded volumes are deleted, regardless of the order in which the volumes are deleted.
func TestBasesOfExpandedVolumesAreDeleted(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for expanded := range 8 {
			t.Run(fmt.Sprintf("deleted in the order %v, expanded %03b", order, expanded), func(t *testing.T) {
				b := newTestService(t, export.TCP)
				b.Service = b.Target.Service(spdkrpc.NewClient(&grownChecker{freezer{Caller: b.fault}, b}))
				all := []Volume{b.create(t, "pvc-0", 4)}
				all = append(all, b.cloneOf(t, "pvc-1", all[0]))
				all = append(all, b.cloneOf(t, "pvc-2", all[1]))
				for i, v := range all {
					if expanded&(1<<i) != 0 {
						_, err := b.Expand(t.Context(), v.UUID, 2*v.SizeBytes, 0)
						require.NoError(t, err)
					}
				}
				for _, i := range order {
					require.NoError(t, b.Delete(t.Context(), all[i].UUID))
				}
				assert.Empty(t, b.state(t).Lvols)
			})
		}
	}
}
