package service

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The proxy's live heap is about ten MiB. With Go's defaults, the garbage collector would run after
// every few thousand calls and take a third of their time. Under load, the proxy therefore raises
// GOGC further. It does not always do so. Otherwise long-lived objects, such as connections, would
// be scattered among short-lived ones, and with 1,000 connections 7 MiB could not be returned to
// the system.
const (
	gcPercent     = 200
	gcPercentBusy = 400
	// busyAbove is the number of bytes allocated in one restCheck above which the proxy is busy; a
	// call allocates about 15 KiB.
	busyAbove = 64 << 20
	// softLimit is the heap size at which the collector runs more often again: SPDK's longest
	// replies have 32 MiB, and several may be in memory at once.
	softLimit = 512 << 20
)

// tuneMemory sets GOGC and GOMEMLIMIT, unless the environment sets them.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(softLimit)
	}
}

// Memory that was needed under load, or to hash a password, is returned to the system when the
// proxy becomes idle: Go would keep it for minutes.
const (
	restCheck = 3 * time.Second
	// restBelow is the number of bytes allocated in one restCheck below which the proxy is idle;
	// probes and scrapes continue then.
	restBelow = 2 << 20
)

// returnMemory returns memory to the system each time that the proxy becomes idle, and makes the
// collector run less often while the proxy is busy.
func returnMemory(ctx context.Context) {
	tick := time.NewTicker(restCheck)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	idle := idleDetector{working: true} // the start itself allocates memory
	tuned, percent := os.Getenv("GOGC") == "", gcPercent
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		allocated := idle.sinceLast(sample[0].Value.Uint64())
		if want := percentFor(allocated); tuned && want != percent {
			percent = want
			debug.SetGCPercent(percent)
		}
		if idle.becomesIdle(allocated) {
			runtime.GC() // objects in a sync.Pool survive one collection
			debug.FreeOSMemory()
		}
	}
}

// An idleDetector decides from successive readings of the total number of bytes allocated whether
// the proxy becomes idle.
type idleDetector struct {
	allocated uint64
	working   bool
}

// sinceLast returns the number of bytes allocated since its last call.
func (d *idleDetector) sinceLast(total uint64) uint64 {
	more := total - d.allocated
	d.allocated = total
	return more
}

// becomesIdle reports whether the proxy is idle now and was not before.
func (d *idleDetector) becomesIdle(allocated uint64) bool {
	idle := d.working && allocated < restBelow
	d.working = allocated >= restBelow
	return idle
}

// percentFor returns GOGC for the number of bytes allocated in one restCheck.
func percentFor(allocated uint64) int {
	if allocated > busyAbove {
		return gcPercentBusy
	}
	return gcPercent
}
