package snapshot

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// slowWrite is the duration of a write to the slow disk. Several calls end during that time.
const slowWrite = 50 * time.Millisecond

// slowDown moves the lvstore to a bdev whose writes take a long time.
func (g *target) slowDown() {
	g.t.Helper()
	ctx, us := g.t.Context(), uint64(slowWrite.Microseconds())
	require.NoError(g.t, g.rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new(store)}))
	_, err := g.rpc.BdevDelayCreate(ctx, spdkrpc.BdevDelayCreateParams{BaseBdevName: disk, Name: "slow", AvgReadLatency: 1, P99ReadLatency: 1, AvgWriteLatency: us, P99WriteLatency: us})
	require.NoError(g.t, err)
	// Clearing the whole slow disk would take a long time.
	_, err = g.rpc.BdevLvolCreateLvstore(ctx, spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "slow", LvsName: store, ClusterSz: new(uint32(mib)), ClearMethod: new(spdkrpc.LvolStoreClearMethodNone)})
	require.NoError(g.t, err)
}

// SPDK waits for a namespace's I/O only if no other call has already paused the subsystem. Several
// methods that only read also pause the subsystem. With a slow disk, I/O is in flight whenever the
// proxy freezes a volume.
func TestSnapshotsOnASlowDiskLoseNoData(t *testing.T) {
	const writers, most = 4, 15
	for name, readers := range map[string][]string{
		"alone": nil, "with readers": {"nvmf_subsystem_get_listeners", "nvmf_subsystem_get_controllers", "nvmf_subsystem_get_qpairs"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTarget(t)
			g.slowDown()
			startRelay(t, g.at("relay.sock"), g.path())
			proxy := startProxy(g)
			volume := g.makeVolume("thin")
			nqn, address := g.share(volume)
			var all []*smallWriter
			for i := range writers {
				all = append(all, startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, uint64(i)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			defer reading.Wait()
			defer cancel()
			for _, method := range readers {
				client, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: proxy.url, Username: "admin", Password: password})
				require.NoError(t, err)
				reading.Go(func() {
					for ctx.Err() == nil {
						_ = client.Call(ctx, method, map[string]any{"nqn": nqn}, nil)
					}
				})
			}
			before := g.firstPage()
			for i := range min(*rounds, most) {
				for _, w := range all {
					w.progress(1)
				}
				var taken []spdkrpc.ProxySnapshot
				snapshot := fmt.Sprint("s", i)
				require.NoError(t, proxy.call(ctx, "spdkgate_lvol_snapshot", map[string]any{"snapshots": []any{map[string]any{"lvol_name": volume, "snapshot_name": snapshot}}}, &taken))
				require.True(t, taken[0].Frozen)
				for _, w := range all {
					w.progress(2) // the writes in flight during the snapshot have ended
				}
				require.True(t, before == g.firstPage(), "snapshot %d: the lvstore's first metadata page was overwritten", i)
			}
		})
	}
}
