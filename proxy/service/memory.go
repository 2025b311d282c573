package service

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The proxy's live heap is about 10 MiB. With Go's defaults, the garbage collector would run once
// every few thousand calls, and use as much as a third of their time. Therefore, the proxy raises
// GOGC, and raises it further under load. It does not use the higher value all the time, because
// long-lived objects, such as connections, would then be scattered among short-lived objects. With
// 1,000 connections, Go could then not return 7 MiB to the system.
const (
	gcPercent     = 200
	gcPercentBusy = 400
	// busyAbove is the number of bytes allocated per restCheck above which the proxy counts as
	// busy. A call allocates about 15 KiB.
	busyAbove = 64 << 20
	// softLimit is the heap size above which the collector runs more often again. SPDK's longest
	// responses are 32 MiB long, and several may be in memory at the same time.
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

// When the proxy becomes idle, it returns the memory that it needed under load or to hash a
// password to the system. Go would keep this memory for minutes.
const (
	restCheck = 3 * time.Second
	// The proxy counts as idle if it allocates fewer than restBelow bytes during restCheck. Probes
	// and scrapes continue even when the proxy is idle.
	restBelow = 2 << 20
)

// returnMemory returns memory to the system whenever the proxy becomes idle, and makes the
// collector run less often while the proxy is busy.
func returnMemory(ctx context.Context) {
	tick := time.NewTicker(restCheck)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	idle := idleDetector{working: true} // starting the proxy also allocates memory
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

// An idleDetector detects when the proxy becomes idle. It compares successive values of the total
// number of bytes allocated.
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

// becomesIdle reports whether the proxy is idle but was not idle at the last call.
func (d *idleDetector) becomesIdle(allocated uint64) bool {
	idle := d.working && allocated < restBelow
	d.working = allocated >= restBelow
	return idle
}

// percentFor returns the value of GOGC for the number of bytes allocated per restCheck.
func percentFor(allocated uint64) int {
	if allocated > busyAbove {
		return gcPercentBusy
	}
	return gcPercent
}
