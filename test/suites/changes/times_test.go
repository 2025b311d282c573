package changes

import (
	"encoding/base64"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

const (
	timedBytes   = 100 << 30
	timedCluster = 4 * mib
	timedOthers  = 1000 // volumes in the lvstore whose metadata come before those of the timed volume
	timedWriters = 16
	timedRounds  = 3
	timedCalls   = 5 // calls to each proxy
)

// TestReadTimes measures how long it takes to read the changes on a volume of 100 GiB, and prints a
// table. A proxy's first call (cold) searches for the snapshots; later calls (warm) do not. Each
// cluster of the volume was allocated by a 4 KiB write, and 1% of the clusters were written to
// again after a snapshot.
func TestReadTimes(t *testing.T) {
	image := newImage(t, 2*timedBytes)
	g := newTarget(t, func(g *target) { g.useFile(image) })
	g.must("bdev_lvol_create_lvstore", p{"bdev_name": disk, "lvs_name": "lvs0", "cluster_sz": timedCluster, "clear_method": "none", "num_md_pages_per_cluster_ratio": 10}, nil)
	for i := range timedOthers {
		g.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": fmt.Sprint("other", i), "size_in_mib": 1024, "thin_provision": true, "clear_method": "none"}, nil)
	}
	var volume, empty, full, later string
	g.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v", "size_in_mib": timedBytes / mib, "thin_provision": true, "clear_method": "none"}, &volume)
	const clusters = timedBytes / timedCluster
	g.must("bdev_lvol_snapshot", p{"lvol_name": volume, "snapshot_name": "empty"}, &empty)
	g.touch(volume, 1)
	g.must("bdev_lvol_snapshot", p{"lvol_name": volume, "snapshot_name": "full"}, &full)
	g.touch(volume, 100)
	g.must("bdev_lvol_snapshot", p{"lvol_name": volume, "snapshot_name": "later"}, &later)

	queries := []timedQuery{
		{"all allocated", p{"snapshot": full}, clusters},
		{"100 % changed", p{"snapshot": full, "base": empty}, clusters},
		{"1 % changed", p{"snapshot": later, "base": full}, clusters / 100},
	}
	t.Log("| Base | Clusters listed | Cold | Warm |")
	for _, q := range queries {
		q.measure(t, g, "AIO")
	}
	g.must("bdev_aio_delete", p{"name": disk}, nil) // unloads the lvstore
	g.useNamespace(newFarTarget(t, image))
	for _, q := range queries {
		q.measure(t, g, "NVMe/TCP")
	}
}

// touch allocates every step-th cluster by writing its first block.
func (g *target) touch(volume string, step int64) {
	nqn, address := g.share(volume)
	var writers errgroup.Group
	for first := range int64(timedWriters) {
		writers.Go(func() error {
			d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: hostNQN})
			if err != nil {
				return err
			}
			defer func() { _ = d.Close() }()
			block := slices.Repeat([]byte{byte(step)}, 4096)
			for at := first * step * timedCluster; at+step*timedCluster <= timedBytes; at += timedWriters * step * timedCluster {
				if _, err := d.WriteAt(block, at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(g.t, writers.Wait())
	g.unshare(nqn)
}

type timedQuery struct {
	name     string
	params   p
	clusters int64 // number of listed clusters
}

// measure logs the median of the first calls of several proxies, and of their later calls.
func (q timedQuery) measure(t *testing.T, g *target, base string) {
	var cold, warm []time.Duration
	for range timedRounds {
		w := startProxy(g)
		require.NoError(t, w.call("spdk_get_version", nil, nil)) // connects
		for call := range 1 + timedCalls {
			var r spdkrpc.ProxyLvolChanges
			began := time.Now()
			require.NoError(t, w.call("spdkgate_lvol_changes", q.params, &r))
			took := time.Since(began)
			if call == 0 {
				cold = append(cold, took)
			} else {
				warm = append(warm, took)
			}
			bitmap, err := base64.StdEncoding.DecodeString(r.Bitmap)
			require.NoError(t, err)
			listed := 0
			for _, b := range bitmap {
				listed += bits.OnesCount8(b)
			}
			require.EqualValues(t, q.clusters, listed)
		}
		w.stop()
	}
	t.Logf("| %s | %s: %d | %v | %v |", base, q.name, q.clusters, median(cold), median(warm))
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2].Round(100 * time.Microsecond)
}
