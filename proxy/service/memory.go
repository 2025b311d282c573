package service

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The proxy's own heap has some ten MiB, so that with Go's defaults the collector
// would run after every few thousand calls and take a third of their time. It
// runs less often, and even less while there is much to do: not always, for then
// what lasts, such as connections, would lie scattered among what does not, and
// hold 7 MiB for 1,000 connections that cannot be given back.
const (
	gcPercent     = 200
	gcPercentBusy = 400
	// busyAbove is how much is allocated from one look to the next when there is
	// much to do: some 15 KiB for a call.
	busyAbove = 64 << 20
	// softLimit is where the collector works harder again: SPDK's longest replies
	// have 32 MiB, and several may be under way.
	softLimit = 512 << 20
)

// tuneMemory trades some MiB for speed, unless the environment says otherwise.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softLimit)
	}
}

// What was needed under load, or for hashing a password, goes back to the system
// when the proxy rests: Go would keep it for minutes.
const (
	restCheck = 3 * time.Second
	// restBelow is how much may be allocated from one look to the next at rest:
	// probes and scrapes go on.
	restBelow = 2 << 20
)

// returnMemory gives memory back once each time that the proxy has come to rest, and
// lets the collector run less often while there is much to do.
func returnMemory(ctx context.Context) {
	tick := time.NewTicker(restCheck)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	worked := idleDetector{working: true} // starting is work
	tuned, percent := os.Getenv("GOGC") == "", gcPercent
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		more := worked.more(sample[0].Value.Uint64())
		if want := percentFor(more); tuned && want != percent {
			percent = want
			debug.SetGCPercent(percent)
		}
		if worked.becomesIdle(more) {
			runtime.GC() // what lies in a sync.Pool outlives one collection
			debug.FreeOSMemory()
		}
	}
}

// An idleDetector looks at how much was allocated in all, again and again.
type idleDetector struct {
	allocated uint64
	working   bool
}

// more is how much was allocated since the last look.
func (w *idleDetector) more(allocated uint64) uint64 {
	more := allocated - w.allocated
	w.allocated = allocated
	return more
}

// becomesIdle tells whether it rests now and did not before.
func (w *idleDetector) becomesIdle(more uint64) bool {
	rests := w.working && more < restBelow
	w.working = more >= restBelow
	return rests
}

func percentFor(more uint64) int {
	if more > busyAbove {
		return gcPercentBusy
	}
	return gcPercent
}
