package changes

import (
	"flag"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

var (
	histories = flag.Int("histories", 3, "number of random histories for each base")
	steps     = flag.Int("steps", 40, "number of steps in each history")
	seed      = flag.Int64("seed", 1, "seed of the first history")
)

// After any sequence of operations, each snapshot can be restored from any other snapshot and the
// reported changes.
func TestChangesRestoreSnapshots(t *testing.T) {
	for _, kind := range []string{"aio", "nvme", "uring"} {
		t.Run(kind, func(t *testing.T) {
			total, refused := map[string]int{}, map[int]map[string]int{}
			for h := range int64(*histories) {
				t.Run(fmt.Sprint(*seed+h), func(t *testing.T) {
					began := time.Now()
					w := newTestbed(t, kind, *seed+h)
					t.Cleanup(func() { w.summarize(kind, *seed+h, time.Since(began)) })
					w.history()
					for name, n := range w.stat {
						total[name] += n
					}
					for code, texts := range w.refused {
						if refused[code] == nil {
							refused[code] = map[string]int{}
						}
						for text, n := range texts {
							refused[code][text] += n
						}
					}
				})
			}
			logTotals(t, total, refused)
		})
	}
}

// logTotals logs what was done, and how often each code was the reason for a refusal.
func logTotals(t *testing.T, total map[string]int, refused map[int]map[string]int) {
	for name, n := range total {
		t.Logf("%-32s %d", name, n)
	}
	for code, texts := range refused {
		sum, example := 0, ""
		for text, n := range texts {
			sum, example = sum+n, text
		}
		t.Logf("refused with %d: %d, such as: %s", code, sum, example)
	}
}

// summarize logs the results of a history in one line: kind of base, release, seed, snapshots,
// comparisons, kills, clusters that differed, clusters listed, wrong clusters, seconds, and whether
// it passed.
func (w *testbed) summarize(kind string, seed int64, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := func(name string) int { return w.stat["all"+name] + w.stat["pairs"+name] + w.stat["volumes"+name] }
	w.t.Logf("HISTORY\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%v", kind, w.release, seed, w.stat["snapshots"], sum(""), w.stat["target killed"],
		sum(": clusters that differ"), sum(": clusters listed"), w.stat["WRONG"], took.Seconds(), !w.t.Failed())
}

func (w *testbed) history() {
	w.prepare()
	var stop atomic.Bool
	var reading sync.WaitGroup
	rnd := rand.New(rand.NewSource(w.rnd.Int63()))
	reading.Go(func() { // changes are read in the meantime
		for !stop.Load() {
			list := w.list()
			if w.compare(pick(rnd, list), pick(rnd, list)) {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	for range *steps {
		w.step()
	}
	stop.Store(true)
	reading.Wait()
	w.quiet = true
	delete(w.refused, -32029) // the volume was locked at that moment
	delete(w.refused, -19)    // the volume was deleted in the meantime
	delete(w.refused, -32052) // the target was killed before it received the call
	delete(w.refused, -32054) // the target was killed during the call
	during := w.refused
	w.refused = map[int]map[string]int{}
	w.verify(40)
	for code, texts := range w.refused { // there are no changes now, so only this refusal is expected
		assert.Equal(w.t, -22, code, "%v", texts)
	}
	for code, texts := range during {
		w.refused[code] = texts
	}
}

func (w *testbed) prepare() {
	for range 5 {
		v := pick(w.rnd, w.vols)
		w.write(v, 20, w.rnd)
		w.take(v)
	}
}

// verify compares all volumes and snapshots, and some pairs of snapshots.
func (w *testbed) verify(pairs int) {
	for _, v := range w.vols {
		w.shut(v)
		w.compareVolume(v, w.list()...)
		w.open(v)
	}
	var g errgroup.Group
	g.SetLimit(2) // the proxy's limit for one user
	list := w.list()
	for _, s := range list {
		g.Go(func() error { w.compare(s, nil); return nil })
	}
	for range pairs {
		s, base := pick(w.rnd, list), pick(w.rnd, list)
		g.Go(func() error { w.compare(s, base); return nil })
	}
	require.NoError(w.t, g.Wait())
}

func (w *testbed) step() {
	v := pick(w.rnd, w.vols)
	switch kind := w.rnd.Intn(20); {
	case kind < 5:
		w.write(v, 5+w.rnd.Intn(80), w.rnd)
	case kind < 11:
		if len(w.list()) < maxTaken {
			w.take(v)
		}
	case kind == 11:
		w.clone()
	case kind < 15:
		w.deleteSnapshot()
	case kind == 15:
		w.detached(v, "bdev_lvol_inflate")
	case kind == 16:
		w.detached(v, "bdev_lvol_decouple_parent")
	case kind == 17:
		w.resize(v)
	case kind == 18:
		w.deleteVolume(v)
	default:
		if w.base.grow == nil || w.rnd.Intn(2) == 0 {
			w.restart()
			return
		}
		w.base.grow()
		w.must("bdev_lvol_grow_lvstore", p{"lvs_name": "lvs0"}, nil)
		w.stat["lvstore grown"]++
	}
}

func (w *testbed) count(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stat[name]++
}

func (w *testbed) clone() {
	if len(w.vols) >= maxVolumes {
		return
	}
	w.n++
	v := &volume{}
	if err := w.proxy.call("bdev_lvol_clone", p{"snapshot_name": pick(w.rnd, w.list()).uuid, "clone_name": fmt.Sprint("c", w.n)}, &v.uuid); err != nil {
		w.count("clones refused")
		return
	}
	w.open(v)
	w.vols = append(w.vols, v)
	w.count("clones")
}

// deleteSnapshot deletes a random snapshot. SPDK moves the snapshot's clusters to its clone.
func (w *testbed) deleteSnapshot() {
	list := w.list()
	if len(list) < 4 {
		return
	}
	s := pick(w.rnd, list)
	if err := w.proxy.call("spdkgate_lvol_delete", p{"name": s.uuid}, nil); err != nil {
		w.count("deletions refused")
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.snaps, s.uuid)
	w.stat["snapshots deleted"]++
}

// detached makes a call on a volume that must not be exported during the call.
func (w *testbed) detached(v *volume, method string) {
	if w.rnd.Intn(2) == 0 {
		return
	}
	w.shut(v)
	if err := w.proxy.call(method, p{"name": v.uuid}, nil); err != nil {
		w.count(method + " refused")
	} else {
		w.count(method)
	}
	w.open(v)
}

func (w *testbed) resize(v *volume) {
	var list []spdkrpc.BdevInfo
	w.must("bdev_get_bdevs", p{"name": v.uuid}, &list)
	if list[0].DriverSpecific.Lvol.BaseSnapshot != nil && !w.release.Has(rpcschema.GrowsBeyondParent) {
		return
	}
	size := int64(list[0].NumBlocks) * int64(list[0].BlockSize) / mib
	next := size + int64(w.rnd.Intn(3))
	if w.rnd.Intn(3) == 0 {
		next = max(volumeMiB/2, size-2)
	}
	w.shut(v)
	require.NoError(w.t, w.retry("bdev_lvol_resize", p{"name": v.uuid, "size_in_mib": next}, nil))
	w.open(v)
	if next < size {
		w.count("shrunk")
	} else {
		w.count("grown")
	}
}

func (w *testbed) deleteVolume(v *volume) {
	if len(w.vols) == 1 {
		w.create()
		return
	}
	for i, other := range w.vols {
		if other == v {
			w.vols = append(w.vols[:i:i], w.vols[i+1:]...)
		}
	}
	w.shut(v)
	require.NoError(w.t, w.retry("bdev_lvol_delete", p{"name": v.uuid}, nil))
	w.count("volumes deleted")
}

// restart kills the target, and starts it again. If there is a program of another release, the two
// programs take turns.
func (w *testbed) restart() {
	for _, v := range w.vols {
		_ = v.hosts.close()
	}
	w.kill()
	if w.other != nil {
		w.program, w.other = w.other, w.program
	}
	w.start()
	require.Eventually(w.t, func() bool { // it takes the proxy a moment to notice that the target responds again
		return w.proxy.call("spdk_get_version", nil, nil) == nil
	}, long, 10*time.Millisecond)
	for _, v := range w.vols {
		w.open(v)
	}
	w.count("target killed")
}
