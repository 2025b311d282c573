package snapshot

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// On releases before v24.05, the driver does not let a volume grow larger than its parent, because
// reads and writes beyond the parent's end fail there with I/O errors.
func TestVolumesOutgrowTheirParentOnlyIfSPDKSupportsIt(t *testing.T) {
	g := newTarget(t)
	release, err := g.rpc.Release(t.Context())
	require.NoError(t, err)
	works := !release.Before(rpcschema.MustRelease("v24.05"))

	grown, err := g.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "grown", LvsName: new(store), SizeInMiB: 4, ThinProvision: new(true)})
	require.NoError(t, err)
	snapshot, err := g.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: grown, SnapshotName: "snapshot"})
	require.NoError(t, err)
	clone, err := g.rpc.BdevLvolClone(t.Context(), spdkrpc.BdevLvolCloneParams{SnapshotName: snapshot, CloneName: "clone"})
	require.NoError(t, err)
	for name, id := range map[string]string{"a volume with a snapshot": grown, "a clone": clone} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, g.rpc.BdevLvolResize(t.Context(), spdkrpc.BdevLvolResizeParams{Name: id, SizeInMiB: 8}))
			nqn, address := g.share(id)
			defer g.unshare(nqn)
			d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:host"})
			require.NoError(t, err)
			defer func() { assert.NoError(t, d.Close()) }()
			block := bytes.Repeat([]byte{1}, blocks.Size)
			_, err = d.ReadAt(block, 2*mib)
			require.NoError(t, err, "what the parent has")
			_, err = d.ReadAt(block, 6*mib)
			if !works {
				require.Error(t, err)
				_, err = d.WriteAt(block, 6*mib)
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, make([]byte, blocks.Size), block)
			written := bytes.Repeat([]byte{2}, blocks.Size)
			_, err = d.WriteAt(written, 6*mib)
			require.NoError(t, err)
			_, err = d.ReadAt(block, 6*mib)
			require.NoError(t, err)
			assert.Equal(t, written, block)
		})
	}
}
