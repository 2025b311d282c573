package changes

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// A volume that was grown after a snapshot keeps its size and its data when the snapshot is deleted
// and the target is killed. The proxy refuses the deletion until the volume has its own extent page
// in place of the snapshot's last one (docs/upstream/lvol-delete-grown.md).
func TestGrownVolumesOutliveTheirSnapshots(t *testing.T) {
	const from, to = 4, 12 // MiB; an extent page covers 8 MiB
	for _, kind := range []string{"aio", "nvme"} {
		t.Run(kind, func(t *testing.T) {
			w := newTestbed(t, kind, *seed)
			if !w.release.Has(rpcschema.GrowsBeyondParent) {
				t.Skip("this release of SPDK cannot read a volume that is larger than its parent")
			}
			v := &volume{}
			w.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "grown", "size_in_mib": from, "thin_provision": false}, &v.uuid)
			w.open(v)
			w.vols = append(w.vols, v)
			want := make([]byte, to*mib)
			write := func(at int64, content byte) {
				b := bytes.Repeat([]byte{content}, cluster)
				copy(want[at:], b)
				require.NoError(t, v.hosts.run([]func(*initiator.Device) error{func(d *initiator.Device) error {
					_, err := d.WriteAt(b, at)
					return err
				}}))
			}
			refused := func() {
				t.Helper()
				err := w.retry("spdkgate_lvol_delete", p{"name": "lvs0/old"}, nil)
				require.ErrorIs(t, err, spdkrpc.InUse)
				require.ErrorContains(t, err, "smaller than its clone lvs0/grown")
			}
			write(0, 1)
			write(3*mib, 2)
			require.NoError(t, w.retry("spdkgate_lvol_snapshot", p{"snapshots": []p{{"lvol_name": v.uuid, "snapshot_name": "old"}}}, nil))
			w.shut(v)
			require.NoError(t, w.retry("bdev_lvol_resize", p{"name": v.uuid, "size_in_mib": to}, nil))
			w.open(v)
			refused()
			write(10*mib, 3) // described by the second extent page
			refused()
			write(mib, 4)
			require.NoError(t, w.retry("spdkgate_lvol_delete", p{"name": "lvs0/old"}, nil))
			w.restart()
			var list []spdkrpc.BdevInfo
			w.must("bdev_get_bdevs", p{"name": v.uuid}, &list)
			assert.EqualValues(t, to*mib, int64(list[0].NumBlocks)*int64(list[0].BlockSize))
			w.shut(v)
			assert.True(t, bytes.Equal(want, w.content(v.uuid)), "the content differs")
			w.open(v)
		})
	}
}

// An empty snapshot can have an extent page, because from v25.09 on, SPDK keeps a page whose
// clusters were all discarded. The volume keeps its size with either kind of empty snapshot.
func TestGrownVolumesOutliveTheirEmptySnapshots(t *testing.T) {
	const from, to = 4, 8 // MiB; an extent page covers 8 MiB
	for _, kind := range []string{"aio", "nvme"} {
		for name, discarded := range map[string]bool{"never written": false, "discarded": true} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				w := newTestbed(t, kind, *seed)
				if !w.release.Has(rpcschema.GrowsBeyondParent) {
					t.Skip("this release of SPDK cannot read a volume that is larger than its parent")
				}
				v := &volume{}
				w.must("bdev_lvol_create", p{"lvs_name": "lvs0", "lvol_name": "grown", "size_in_mib": from, "thin_provision": true}, &v.uuid)
				w.open(v)
				w.vols = append(w.vols, v)
				do := func(f func(*initiator.Device) error) {
					require.NoError(t, v.hosts.run([]func(*initiator.Device) error{f}))
				}
				write := func(d *initiator.Device) error {
					_, err := d.WriteAt(bytes.Repeat([]byte{1}, cluster), mib)
					return err
				}
				if discarded {
					do(write)
					do(func(d *initiator.Device) error { return d.Deallocate(mib, cluster) })
				}
				require.NoError(t, w.retry("spdkgate_lvol_snapshot", p{"snapshots": []p{{"lvol_name": v.uuid, "snapshot_name": "old"}}}, nil))
				var list []spdkrpc.BdevInfo
				w.must("bdev_get_bdevs", p{"name": "lvs0/old"}, &list)
				require.NotNil(t, list[0].DriverSpecific.Lvol.NumAllocatedClusters)
				require.Zero(t, *list[0].DriverSpecific.Lvol.NumAllocatedClusters)
				w.shut(v)
				require.NoError(t, w.retry("bdev_lvol_resize", p{"name": v.uuid, "size_in_mib": to}, nil))
				w.open(v)
				if discarded {
					require.ErrorIs(t, w.retry("spdkgate_lvol_delete", p{"name": "lvs0/old"}, nil), spdkrpc.InUse)
					do(write)
				}
				require.NoError(t, w.retry("spdkgate_lvol_delete", p{"name": "lvs0/old"}, nil))
				w.restart()
				w.must("bdev_get_bdevs", p{"name": v.uuid}, &list)
				assert.EqualValues(t, to*mib, int64(list[0].NumBlocks)*int64(list[0].BlockSize))
			})
		}
	}
}
