package volume

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// After a restart of the target, SPDK refuses a snapshot without clones as a parent until a helper
// clone of the snapshot has been created.
func TestSetParentSucceedsAfterATargetRestart(t *testing.T) {
	b := newTestService(t, export.TCP)
	skipBeforeSetParent(t, b)
	source := b.create(t, "pvc-1", 4)
	snap, err := b.Snapshot(t.Context(), "snap-1", source.UUID)
	require.NoError(t, err)
	require.NoError(t, b.Delete(t.Context(), source.UUID))
	refused := &spdkrpc.Error{Method: "bdev_lvol_set_parent", Kind: spdkrpc.Failed, Code: -32602}
	refusing := func() *drivertest.FirstCall {
		return &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_set_parent", Before: func(context.Context, any) error { return refused }}
	}
	clone := func(caller spdkrpc.Caller, name string) (Volume, error) {
		spec := Spec{Name: name, MinBytes: 4 * MiB, Class: class.Class{Clear: class.ClearWriteZeroes}}
		return NewTarget(b.Config).Service(spdkrpc.NewClient(caller)).Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, spec)
	}

	unhelpful := &drivertest.FirstCall{Caller: refusing(), Method: "bdev_lvol_clone", Before: func(context.Context, any) error { return refused }}
	_, err = clone(unhelpful, "pvc-2")
	require.Error(t, err)
	v, err := clone(refusing(), "pvc-2")
	require.NoError(t, err)
	assert.Equal(t, snap.Name, v.Base)
	for _, l := range b.state(t).Lvols {
		assert.NotContains(t, l, "helper")
	}
	assert.Len(t, b.state(t).Lvols, 2)

	// If the snapshot already has a clone, SPDK refuses for another reason, so the driver must not
	// create another clone.
	recorded := &recorder{Caller: refusing(), method: "bdev_lvol_clone"}
	_, err = clone(recorded, "pvc-3")
	require.Error(t, err)
	assert.Empty(t, recorded.sent)
}
