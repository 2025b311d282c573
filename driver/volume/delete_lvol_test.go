package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A snapshot below a volume in use is deleted only while that volume is frozen.
func TestSnapshotIsDeletedOnlyDuringAFreeze(t *testing.T) {
	b := newTestService(t, export.TCP)
	f := behindFreezer(b)
	v := b.create(t, "pvc-1", 4)
	snap, err := b.Snapshot(t.Context(), "snap", v.UUID)
	require.NoError(t, err)
	h := drivertest.MultipathHost("n1")
	_, err = b.Export(t.Context(), v.UUID, h)
	require.NoError(t, err)
	f.fails = &spdkrpc.Error{Method: "spdkgate_lvol_delete", Kind: spdkrpc.InUse, Code: -32009}
	require.ErrorIs(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil), spdkrpc.InUse)
	f.fails = nil
	if b.sim != nil {
		require.NoError(t, b.sim.ConnectHost(export.NQN(v.UUID), h.NQN)) // without multipath
		require.ErrorIs(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil), ErrInUse)
		assert.Empty(t, f.deleted)
		require.NoError(t, b.Unexport(t.Context(), v.UUID, nil))
		_, err = b.Export(t.Context(), v.UUID, h)
		require.NoError(t, err)
	}
	require.NoError(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil))
	assert.Equal(t, []string{snap.UUID}, f.deleted)
}

// With a proxy that cannot freeze I/O, the snapshot is not deleted until the volume is detached.
func TestOldProxyDoesNotDeleteSnapshotOfVolumeInUse(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			v := b.create(t, "pvc-1", 4)
			snap, err := b.Snapshot(t.Context(), "snap", v.UUID)
			require.NoError(t, err)
			h := drivertest.MultipathHost("n1")
			_, err = b.Export(t.Context(), v.UUID, h)
			require.NoError(t, err)
			before := b.state(t)
			err = b.DeleteSnapshot(t.Context(), snap.UUID, nil)
			require.ErrorIs(t, err, ErrInUse)
			assert.ErrorContains(t, err, "upgrade spdk-proxy")
			assert.Equal(t, before, b.state(t), "nothing changed")
			require.NoError(t, b.Unexport(t.Context(), v.UUID, &h))
			require.NoError(t, b.Delete(t.Context(), v.UUID))
			require.NoError(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil))
		})
	}
}
