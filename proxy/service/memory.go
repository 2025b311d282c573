package service

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The proxy's own heap has some ten MiB, so that with Go's defaults the collector
// would run after every few thousand calls and take a third of their time. More
// than this would have what lasts, such as connections, lie scattered among what
// does not, and hold 7 MiB for 1,000 connections that cannot be given back.
const (
	gcPercent = 200
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

// giveBack gives memory back once each time that the proxy has come to rest.
func giveBack(ctx context.Context) {
	tick := time.NewTicker(restCheck)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	worked := restWatch{working: true} // starting is work
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		metrics.Read(sample)
		if worked.comesToRest(sample[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}

// A restWatch looks at how much was allocated in all, again and again.
type restWatch struct {
	allocated uint64
	working   bool
}

// comesToRest tells whether it rests now and did not before.
func (w *restWatch) comesToRest(allocated uint64) bool {
	more := allocated - w.allocated
	w.allocated = allocated
	rests := w.working && more < restBelow
	w.working = more >= restBelow
	return rests
}
