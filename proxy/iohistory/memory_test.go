package iohistory

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// The memory for 10,000 volumes in use is limited, and is freed when the volumes are deleted.
func TestMemoryForManyVolumesIsLimited(t *testing.T) {
	const volumes = 10_000
	made := &figures.Figures{Up: true, Clock: 1}
	for i := range volumes {
		made.Volumes = append(made.Volumes, figures.Volume{Store: "lvs0", Name: fmt.Sprintf("pvc-%05d", i), UUID: fmt.Sprintf("8b6fd5f4-6a4b-4d2a-8a3e-%012d", i), HasIO: true})
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	h := New()
	before := heap()
	next := func(histograms bool) {
		made.Clock += Interval.Seconds()
		latencies := map[string]Latency{}
		for _, name := range h.Busiest(made) {
			if histograms {
				latencies[name] = Latency{Distribution: distribution(t, 100)}
			}
		}
		h.Note(made, latencies)
	}
	next(false)
	idle := heap() - before
	for round := range 2 * Kept {
		for i := range made.Volumes {
			made.Volumes[i].IO.Read.Count += 1000
		}
		next(round >= 2*Kept-2)
	}
	busy := heap() - before
	assert.Len(t, h.Latest(), maxBdevs)
	t.Logf("%d volumes: %.1f MiB while idle, %.1f MiB while all have I/O", volumes, float64(idle)/(1<<20), float64(busy)/(1<<20))
	assert.Less(t, busy, uint64(20<<20))
	made.Volumes = nil
	next(false)
	assert.Less(t, heap(), before+2<<20)
	runtime.KeepAlive(h)
}
