package snapshot

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// If a snapshot is smaller than both its parent and its clone, SPDK gives the clone the parent's
// clusters when it deletes the snapshot. The proxy refuses the deletion.
func TestDeletionsOfShrunkSnapshotsAreRefused(t *testing.T) {
	w := newEnvironment(newTarget(t))
	release, err := w.rpc.Release(t.Context())
	require.NoError(t, err)
	zeros := !release.Before(rpcschema.MustRelease("v24.05")) // earlier releases fail to read beyond the parent's end

	const size = 8 // clusters of 1 MiB
	volume, err := w.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "v", LvsName: new(store), SizeInMiB: size, ThinProvision: new(true)})
	require.NoError(t, err)
	on := func(do func(d *initiator.Device)) {
		nqn, address := w.share(volume)
		defer w.unshare(nqn)
		d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:host"})
		require.NoError(t, err)
		defer func() { assert.NoError(t, d.Close()) }()
		do(d)
	}
	// content returns the first byte of each cluster, or "-" if the cluster cannot be read.
	content := func() (text string) {
		on(func(d *initiator.Device) {
			for i := range int64(size) {
				block := make([]byte, blocks.Size)
				if _, err := d.ReadAt(block, i*mib); err != nil {
					text += "-"
				} else {
					text += fmt.Sprint(block[0])
				}
			}
		})
		return text
	}
	on(func(d *initiator.Device) {
		for i := range int64(size) {
			_, err := d.WriteAt(bytes.Repeat([]byte{7}, blocks.Size), i*mib)
			require.NoError(t, err)
		}
	})
	snapshot := func(name string) string {
		id, err := w.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: volume, SnapshotName: name})
		require.NoError(t, err)
		return id
	}
	resize := func(clusters uint64) {
		require.NoError(t, w.rpc.BdevLvolResize(t.Context(), spdkrpc.BdevLvolResizeParams{Name: volume, SizeInMiB: clusters}))
	}
	snapshot("p")
	resize(2)
	s := snapshot("s")
	resize(size)
	before := "77------"
	if zeros {
		before = "77000000"
	}
	require.Equal(t, before, content())

	for _, method := range []string{"bdev_lvol_delete", "spdkgate_lvol_delete"} {
		err := w.proxy.call(t.Context(), method, spdkrpc.BdevLvolDeleteParams{Name: s}, nil)
		require.ErrorIs(t, err, spdkrpc.InUse, method)
		require.ErrorContains(t, err, "Nothing was executed")
		require.Equal(t, before, content(), method)
	}
	if release.Has(rpcschema.InflatesBeyondParent) {
		inflated, err := w.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: volume, SnapshotName: "top"})
		require.NoError(t, err)
		require.ErrorIs(t, w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: s}, nil), spdkrpc.InUse, "the clone is a snapshot")
		require.NoError(t, w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: inflated}, nil))
		require.Equal(t, before, content())
	}
	// The following deletion bypasses the proxy, to show SPDK's own behavior.
	require.NoError(t, w.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: s}))
	require.Equal(t, "77777777", content())

	// The proxy does not refuse the deletion if the clone or the parent is not larger.
	resize(2)
	s = snapshot("s")
	require.NoError(t, w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: s}, nil))
	require.NoError(t, w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: store + "/p"}, nil))
	s = snapshot("s")
	resize(size)
	before = content()
	require.Equal(t, "77", before[:2])
	require.NoError(t, w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: s}, nil))
	require.Equal(t, "77000000", content())

	// The test applies the remedy that the error names.
	if release.Has(rpcschema.InflatesBeyondParent) {
		resize(size)
		on(func(d *initiator.Device) {
			_, err := d.WriteAt(bytes.Repeat([]byte{7}, blocks.Size), 5*mib)
			require.NoError(t, err)
		})
		snapshot("p")
		resize(2)
		s = snapshot("s")
		resize(size)
		require.Equal(t, "77000000", content())
		require.NoError(t, w.proxy.call(t.Context(), "bdev_lvol_inflate", spdkrpc.BdevLvolInflateParams{Name: volume}, nil))
		require.NoError(t, w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: s}, nil))
		require.Equal(t, "77000000", content())
	}
}
