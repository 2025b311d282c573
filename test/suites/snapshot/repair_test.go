package snapshot

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/lvstore/blobstore"
	"github.com/spdkgate/spdkgate/lvstore/check"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// An lvstore that an unprotected snapshot has damaged is detected while its target is running, and
// is then repaired. The target can load the repaired lvstore, and it contains all writes.
func TestDamagedStoreIsFoundAndRepaired(t *testing.T) {
	g := newTarget(t)
	name := g.makeVolume("thin")
	nqn, address := g.share(name)
	w := startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, 1)
	w.progress(100)
	undamaged := g.firstPage()
	r := g.check()
	require.False(t, r.Damaged(), "findings in an undamaged store in use: %v", r.Report.Findings)
	for taken := 0; g.firstPage() == undamaged; taken++ {
		require.Less(t, taken, *rounds, "the fault did not occur")
		_, err := g.rpc.BdevLvolSnapshot(t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: name, SnapshotName: fmt.Sprint("s", taken)})
		require.NoError(t, err)
		// The bug report has this interval between snapshots. The test is not waiting for anything.
		time.Sleep(100 * time.Millisecond)
	}
	// the next allocation rewrites the extent page that was written to a wrong place
	w.progress(200)
	w.stop()
	r = g.check()
	require.True(t, r.Damaged())
	require.True(t, r.Report.Findings[0].Super, "%v", r.Report.Findings)
	require.Len(t, r.Report.Findings, 1, "%v", r.Report.Findings)

	page, offset, err := blobstore.SuperPage(r.Report.Super, r.UUID, r.Store)
	require.NoError(t, err)
	require.True(t, string(page) == string(undamaged[:]), "the repaired page differs from the original")
	f, err := os.OpenFile(g.image(), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(page, offset)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
	r = g.check()
	require.False(t, r.Damaged(), "%v", r.Report.Findings)
	g.kill()
	g.start()
	require.True(t, g.loads(), "the store does not load")
	last := g.verify(name, w.writes(), w.acked(), w.begun())
	t.Logf("%d writes verified after the repair", last)
}

func (g *target) check() check.Result {
	g.t.Helper()
	list, err := check.Target(g.t.Context(), g.rpc, false)
	require.NoError(g.t, err)
	require.Len(g.t, list, 1)
	require.NoError(g.t, list[0].Unchecked)
	return list[0]
}
