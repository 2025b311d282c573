package service

import (
	"os"
	"runtime/debug"
)

// The proxy's own heap has a few MiB, so that with Go's defaults the collector
// would run after every few thousand calls and take a third of their time.
const (
	gcPercent = 400
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
