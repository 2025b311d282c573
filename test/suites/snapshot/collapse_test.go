package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// Snapshots are deleted while a host is writing to the clone that takes over their clusters. No
// write fails, and all acknowledged writes survive a kill and restart of the target.
func TestDeletionsDuringWritesLoseNoData(t *testing.T) {
	for _, kind := range []string{"thin", "thick"} {
		t.Run(kind, func(t *testing.T) {
			w := newEnvironment(newTarget(t))
			s := &subject{kind: kind, bdev: w.makeVolume(kind)}
			nqn, address := w.share(s.bdev)
			s.writer = startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, 1)
			s.progress(50)
			page, states := w.firstPage(), w.anaStates()
			var calls, stalls []time.Duration
			for round := range *rounds {
				w.take(s, fmt.Sprint("snapshot-", round))
				s.progress(5)
				require.Error(t, w.proxy.call(t.Context(), "bdev_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: s.kept[0].id}, nil), "SPDK's own method must fail: nothing freezes the volume for it")
				s.longest()
				began := time.Now()
				var deleted spdkrpc.ProxyDeletion
				require.Eventually(t, func() bool {
					err := w.proxy.call(t.Context(), "spdkgate_lvol_delete", spdkrpc.SpdkgateLvolDeleteParams{Name: s.kept[0].id}, &deleted)
					if err != nil {
						t.Logf("round %d: %v", round, err)
					}
					return err == nil
				}, long, 50*time.Millisecond)
				require.True(t, deleted.Frozen)
				calls = append(calls, time.Since(began))
				s.progress(5)
				stalls = append(stalls, s.longest())
				s.kept = nil
				require.True(t, page == w.firstPage(), "round %d: the store's first metadata page was overwritten", round)
				require.Equal(t, states, w.anaStates(), "round %d: the ANA states changed", round)
			}
			s.stop()
			t.Logf("%d deletions took %v (median) to %v, the longest write around them %v (median) to %v",
				*rounds, quantile(calls, 0.5), quantile(calls, 1), quantile(stalls, 0.5), quantile(stalls, 1))
			w.kill()
			w.start()
			require.True(t, w.loads(), "the store does not load")
			last := w.verify(s.bdev, s.writes(), s.acked(), s.begun())
			t.Logf("the volume verified, %d writes", last)
		})
	}
}
