package changes

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// Operations that the random histories do not contain leave the lists complete.
func TestChangesAfterRareOperations(t *testing.T) {
	for _, kind := range []string{"aio", "nvme"} {
		t.Run(kind, func(t *testing.T) {
			w := newTestbed(t, kind, *seed)
			w.quiet = true
			w.prepare()
			w.verifyAll()
			for _, v := range w.vols { // smaller than its parent, and as large again
				for _, size := range []int{volumeMiB / 2, volumeMiB} {
					w.shut(v)
					require.NoError(t, w.retry("bdev_lvol_resize", p{"name": v.uuid, "size_in_mib": size}, nil))
					w.open(v)
					w.write(v, 5, w.rnd)
				}
				w.take(v)
			}
			w.verifyAll()

			require.NoError(t, w.proxy.call("bdev_lvol_rename_lvstore", p{"old_name": "lvs0", "new_name": "renamed"}, nil))
			w.verifyAll()
			w.take(w.vols[0])
			w.verifyAll()
			require.NoError(t, w.proxy.call("bdev_lvol_rename_lvstore", p{"old_name": "renamed", "new_name": "lvs0"}, nil))

			w.setParents()
			w.verifyAll()

			var readOnly string
			w.must("bdev_lvol_clone", p{"snapshot_name": w.list()[0].uuid, "clone_name": "read-only"}, &readOnly)
			w.must("bdev_lvol_set_read_only", p{"name": readOnly}, nil)
			w.snaps[readOnly] = &snapshot{readOnly, w.content(readOnly)}
			w.verifyAll()

			w.proxy.stop()
			w.proxy = startProxy(w.target)
			w.verifyAll()
			w.restart()
			w.verifyAll()

			// Another lvstore on the same device, whose snapshots begin on the same pages.
			old := w.list()
			for _, v := range w.vols {
				w.shut(v)
			}
			require.NoError(t, w.proxy.call("bdev_lvol_delete_lvstore", p{"lvs_name": "lvs0"}, nil))
			w.must("bdev_lvol_create_lvstore", p{"bdev_name": w.base.bdev, "lvs_name": "lvs0", "cluster_sz": cluster}, nil)
			w.vols, w.snaps = nil, map[string]*snapshot{}
			for range 2 {
				w.create()
			}
			w.prepare()
			w.verifyAll()
			for _, s := range old {
				_, err := w.changes(s, nil)
				require.ErrorIs(t, err, spdkrpc.NoSuchDevice)
			}
			w.report()
		})
	}
}

// setParents gives clones of snapshots other parents, and takes snapshots of them.
func (w *testbed) setParents() {
	for i := range 6 {
		var list []spdkrpc.BdevInfo
		parent := pick(w.rnd, w.list())
		v := &volume{}
		w.must("bdev_lvol_clone", p{"snapshot_name": pick(w.rnd, w.list()).uuid, "clone_name": fmt.Sprint("adopted", i)}, &v.uuid)
		w.must("bdev_get_bdevs", p{"name": parent.uuid}, &list)
		err := w.proxy.call("bdev_lvol_set_parent", p{"lvol_name": v.uuid, "parent_name": list[0].Aliases[0]}, nil)
		if spdkrpc.KindOf(err) == spdkrpc.MethodNotFound {
			w.must("bdev_lvol_delete", p{"name": v.uuid}, nil)
			return
		}
		if err != nil { // the clone already has this parent
			require.Equal(w.t, spdkrpc.InvalidParams, spdkrpc.KindOf(err), "%v", err)
		} else {
			w.count("parents set")
		}
		w.open(v)
		w.write(v, 10, w.rnd)
		w.take(v)
		w.shut(v)
		require.NoError(w.t, w.retry("bdev_lvol_delete", p{"name": v.uuid}, nil))
	}
}

// report logs what was done and why lists were refused.
func (w *testbed) report() {
	for name, n := range w.stat {
		w.t.Logf("%-32s %d", name, n)
	}
	for code, texts := range w.refused {
		for text, n := range texts {
			w.t.Logf("refused with %d: %d: %s", code, n, text)
		}
	}
}

// An upgrade of the target, and a return to the earlier release, leave the lists complete.
func TestChangesAcrossReleases(t *testing.T) {
	other := strings.Fields(os.Getenv("SPDK_TGT_OTHER"))
	if len(other) == 0 {
		t.Skip("set SPDK_TGT_OTHER to the spdk_tgt of another release to run this test")
	}
	for h := range int64(*histories) {
		w := newTestbed(t, "aio", *seed+h)
		first := w.release
		w.other = other
		w.base.grow = nil // could crash the later release (docs/upstream/lvol-grow-earlier.md)
		w.restart()
		second := w.targetRelease()
		require.NotEqual(t, first, second)
		if second.Before(first) {
			w.release = second
		}
		w.history()
		w.report()
	}
}
