package targetmetrics

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// If a target has no objects of a kind, the metric families for that kind are omitted, including
// their headers.
func TestFamiliesWithoutSamplesAreOmitted(t *testing.T) {
	up := func(change func(f *figures.Figures)) *figures.Figures {
		f := &figures.Figures{Up: true, Phase: "runtime", Release: "v26.05", Taken: time.Unix(1, 0)}
		change(f)
		return f
	}
	for name, f := range map[string]*figures.Figures{
		"nothing":        up(func(*figures.Figures) {}),
		"everything":     full(),
		"no listeners":   up(func(f *figures.Figures) { f.NVMf = figures.NVMf{Known: true} }),
		"one poll group": up(func(f *figures.Figures) { f.NVMf.PollGroups = []figures.PollGroup{{Name: "g"}} }),
		"one thread":     up(func(f *figures.Figures) { f.Threads = []figures.Thread{{Name: "t"}} }),
		"one poller":     up(func(f *figures.Figures) { f.Pollers = []figures.Poller{{Thread: "t", Name: "p"}} }),
		"one reactor":    up(func(f *figures.Figures) { f.Reactors = []figures.Reactor{{Core: 1}} }),
		"one buffer":     up(func(f *figures.Figures) { f.Buffers = []figures.BufferPool{{Module: "m"}} }),
		"one volume": up(func(f *figures.Figures) {
			f.Volumes = []figures.Volume{{Store: "s", Name: "v", UUID: "1", Size: 1, AllocatedKnown: true, HasIO: true}}
		}),
		"one bdev":          up(func(f *figures.Figures) { f.Bdevs = []figures.Bdev{{Name: "b"}} }),
		"one store":         up(func(f *figures.Figures) { f.Stores = []figures.Store{{Name: "s"}} }),
		"an iSCSI target":   up(func(f *figures.Figures) { f.ISCSI = figures.ISCSI{Known: true, TargetNodes: 1} }),
		"one failure":       up(func(f *figures.Figures) { f.Failures = []figures.Failure{{Method: "m"}} }),
		"the target is off": {Phase: "unreachable"},
	} {
		lines := strings.Split(strings.TrimSuffix(string(New(10).Text(f).Plain), "\n"), "\n")
		for i, line := range lines {
			family, isType := strings.CutPrefix(line, "# TYPE ")
			if !isType {
				continue
			}
			family, _, _ = strings.Cut(family, " ")
			if assert.Less(t, i+1, len(lines), "%s: %s", name, family) {
				assert.True(t, strings.HasPrefix(lines[i+1], family), "%s: %s has no samples", name, family)
			}
		}
		if name == "everything" {
			continue
		}
		got := samples(t, New(10).Text(f).Plain)
		for label, series := range map[string]string{
			"one thread": "spdk_thread_busy_seconds_total t", "one poller": "spdk_poller_runs_total t p", "one reactor": "spdk_reactor_threads 1", "one volume": "spdk_lvol_size_bytes s v",
		} {
			_, has := got[series]
			assert.Equal(t, label == name, has, "%s: %s", name, series)
		}
	}
}

// Each sum grows by the increase of SPDK's counters. If any counter has decreased, the counters
// have been reset, and their values are added in full.
func TestOperationSumsNeverDecrease(t *testing.T) {
	op := func(bytes, count uint64, latency float64) figures.Operation {
		return figures.Operation{Bytes: bytes, Count: count, Latency: latency}
	}
	for _, c := range []struct{ before, now, want figures.Operation }{
		{op(10, 2, 3), op(15, 3, 7), op(105, 101, 104)},
		{op(10, 2, 3), op(10, 2, 3), op(100, 100, 100)},
		{op(10, 2, 3), op(9, 5, 7), op(109, 105, 107)},
		{op(10, 2, 3), op(11, 1, 7), op(111, 101, 107)},
		{op(10, 2, 3), op(11, 5, 2), op(111, 105, 102)},
	} {
		sum := op(100, 100, 100)
		add(&sum, c.before, c.now)
		assert.Equal(t, c.want, sum, "%+v", c)
	}
}
