package changes

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// This measures how long it takes to read the changes on a fully allocated volume of 100 GiB. A
// proxy's first call searches for the snapshot; later calls do not.
func TestTimes(t *testing.T) {
	for _, kind := range []string{"aio", "nvme"} {
		for _, clusterMiB := range []int{1, 4} {
			t.Run(fmt.Sprint(kind, " with clusters of ", clusterMiB, " MiB"), func(t *testing.T) {
				g, b := bases[kind](t, 1<<40)
				g.must("bdev_lvol_create_lvstore", p{"bdev_name": b.bdev, "lvs_name": "lvs0", "cluster_sz": clusterMiB * mib, "clear_method": "none", "num_md_pages_per_cluster_ratio": 10}, nil)
				var made, first, second string
				g.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "v", "size_in_mib": 100 << 10, "thin_provision": false, "clear_method": "none"}, &made)
				g.must("bdev_lvol_snapshot", p{"lvol_name": made, "snapshot_name": "s1"}, &first)
				g.must("bdev_lvol_snapshot", p{"lvol_name": made, "snapshot_name": "s2"}, &second)
				for range 2 {
					w := startProxy(g)
					for _, q := range []p{{"snapshot": first}, {"snapshot": first}, {"snapshot": first}, {"snapshot": second, "base": first}, {"snapshot": second, "base": first}} {
						began := time.Now()
						var r spdkrpc.ProxyLvolChanges
						require.NoError(t, w.call("spdkgate_lvol_changes", q, &r))
						t.Logf("%v: %v, bitmap of %d bytes", q["base"] != nil, time.Since(began).Round(100*time.Microsecond), len(r.Bitmap))
					}
				}
			})
		}
	}
}
