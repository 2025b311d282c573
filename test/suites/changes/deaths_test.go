package changes

import (
	"bytes"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If the target is killed while it takes or deletes a snapshot, or inflates or decouples a volume,
// each remaining snapshot keeps its content, and can be restored from any other snapshot.
func TestChangesSurviveInterruptedOperations(t *testing.T) {
	for _, kind := range []string{"aio", "nvme"} {
		t.Run(kind, func(t *testing.T) {
			w := newTestbed(t, kind, *seed)
			w.quiet = true
			for range *steps {
				for len(w.list()) < 8 {
					v := pick(w.rnd, w.vols)
					w.write(v, 5+w.rnd.Intn(80), w.rnd)
					w.take(v)
				}
				w.dieDuringOperation()
				w.forgetLost()
				w.verifyAll()
			}
			w.report()
		})
	}
}

// dieDuringOperation kills the target at a random time during an operation, while a host writes.
func (w *testbed) dieDuringOperation() {
	v := pick(w.rnd, w.vols)
	method, params := "spdkgate_lvol_delete", p{"name": pick(w.rnd, w.list()).uuid}
	switch w.rnd.Intn(6) {
	case 0:
		method, params = "spdkgate_lvol_snapshot", p{"snapshots": []p{{"lvol_name": v.uuid, "snapshot_name": "interrupted", "nqn": v.nqn}}}
	case 1:
		method, params = "bdev_lvol_inflate", p{"name": v.uuid}
	case 2:
		method, params = "bdev_lvol_decouple_parent", p{"name": v.uuid}
	}
	if method == "bdev_lvol_inflate" || method == "bdev_lvol_decouple_parent" {
		w.shut(v) // a volume that is inflated must not be exported
	}
	rnd := rand.New(rand.NewSource(w.rnd.Int63()))
	var calls sync.WaitGroup
	calls.Go(func() {
		if err := w.proxy.call(method, params, nil); err == nil {
			w.count(method)
		} else {
			w.count(method + " interrupted")
		}
	})
	if other := pick(w.rnd, w.vols); other.hosts != nil {
		calls.Go(func() { _ = other.hosts.run(randomWrites(other.hosts[0].Bytes(), 20, rnd)) })
	}
	time.Sleep(time.Duration(w.rnd.Int63n(int64(10 * time.Millisecond << w.rnd.Intn(6)))))
	w.kill()
	calls.Wait()
	w.restart()
}

// forgetLost updates the list of snapshots after the target was killed. Snapshots that still exist
// must have the same content as before. An unfinished snapshot is deleted.
func (w *testbed) forgetLost() {
	var list []spdkrpc.BdevInfo
	w.must("bdev_get_bdevs", nil, &list)
	known := w.snaps
	w.snaps = map[string]*snapshot{}
	for _, b := range list {
		if b.DriverSpecific.Lvol == nil || b.SupportedIOTypes.Write {
			continue
		}
		before := known[b.UUID]
		if before == nil {
			w.count("snapshots taken while the target died")
			require.NoError(w.t, w.retry("spdkgate_lvol_delete", p{"name": b.UUID}, nil))
			continue
		}
		assert.True(w.t, bytes.Equal(before.content, w.content(b.UUID)), "the content of snapshot %s has changed", b.UUID)
		w.snaps[b.UUID] = before
	}
	w.stat["snapshots deleted"] += len(known) - len(w.snaps)
}

// verifyAll compares all pairs of snapshots, and the volumes.
func (w *testbed) verifyAll() {
	for _, v := range w.vols {
		w.shut(v)
		w.compareVolume(v, w.list()...)
		w.open(v)
	}
	for _, s := range w.list() {
		w.compare(s, nil)
		for _, base := range w.list() {
			w.compare(s, base)
		}
	}
	for code, texts := range w.refused {
		assert.Equal(w.t, -22, code, "%v", texts)
	}
}
