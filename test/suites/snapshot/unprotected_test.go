package snapshot

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

var rounds = flag.Int("rounds", 300, "how many snapshots each test takes")

// volumeBytes is large enough for writes to allocate clusters even after many snapshots. After each
// snapshot, the volume has no clusters of its own.
const volumeBytes = 1 << 30

// keep is the number of a volume's snapshots that exist at once.
const keep = 4

// Without protection, SPDK destroys the lvstore. The tests of the protection are meaningful only as
// long as unprotected snapshots destroy the lvstore. If this test fails on a new release, that
// release may contain a fix, and may not need the protection.
func TestUnprotectedSnapshotsDestroyTheStore(t *testing.T) {
	for _, kind := range []string{"thin", "thick", "clone"} {
		t.Run(kind, func(t *testing.T) {
			g := newTarget(t)
			name := g.makeVolume(kind)
			nqn, address := g.share(name)
			w := startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, 1)
			w.progress(100)
			before := g.firstPage()
			taken := 0
			for g.firstPage() == before && taken < *rounds {
				_, err := g.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: name, SnapshotName: fmt.Sprint("s", taken)})
				require.NoError(t, err)
				taken++
				if taken > keep {
					require.NoError(t, g.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: fmt.Sprintf("%s/s%d", store, taken-keep-1)}))
				}
				time.Sleep(100 * time.Millisecond) // the rate of snapshots in the bug report, without waiting for anything
			}
			w.stop()
			require.NotEqual(t, before, g.firstPage(), "the fault did not occur in %d snapshots: this release may have fixed it", taken)
			t.Logf("the store's first metadata page was overwritten at snapshot %d", taken)
			g.kill()
			g.start()
			assert.False(t, g.loads(), "the store loads although its first metadata page was overwritten")
		})
	}
}

// makeVolume creates a volume without the driver. kind is thin, thick or clone.
func (g *target) makeVolume(kind string) (name string) {
	g.t.Helper()
	ctx := g.t.Context()
	create := func(name string, thin bool) {
		_, err := g.rpc.BdevLvolCreate(ctx, spdkrpc.BdevLvolCreateParams{LvolName: name, LvsName: new(store), SizeInMiB: volumeBytes / mib, ThinProvision: &thin,
			// Without this clear method, freed clusters on a file-backed disk keep their data,
			// which the next volume can read.
			ClearMethod: new(spdkrpc.LvolClearMethodWriteZeroes)})
		require.NoError(g.t, err)
	}
	if kind != "clone" {
		create("v", kind == "thin")
		return store + "/v"
	}
	create("source", true)
	_, err := g.rpc.BdevLvolSnapshot(ctx, spdkrpc.BdevLvolSnapshotParams{LvolName: store + "/source", SnapshotName: "base"})
	require.NoError(g.t, err)
	_, err = g.rpc.BdevLvolClone(ctx, spdkrpc.BdevLvolCloneParams{SnapshotName: store + "/base", CloneName: "v"})
	require.NoError(g.t, err)
	return store + "/v"
}
