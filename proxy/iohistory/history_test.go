package iohistory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// A feed adds figures to a History, once per minute of the target's clock.
type feed struct {
	history  *History
	minute   int
	restarts int
	counts   map[string]uint64

	latencies map[string]Latency // passed with the next figures
}

func newFeed() *feed { return &feed{history: New(), minute: 10, counts: map[string]uint64{}} }

// add advances the clock. During these minutes, each volume in reads serves that many reads of 4
// KiB, each of which takes 200 µs.
func (f *feed) add(minutes int, reads map[string]uint64) {
	f.minute += minutes
	for name, n := range reads {
		f.counts[name] += n
	}
}

// next increases the counters, and passes the figures to the history.
func (f *feed) next(minutes int, reads map[string]uint64) {
	f.add(minutes, reads)
	f.history.Note(f.figures(), f.latencies)
	f.latencies = nil
}

// figures returns the current counters.
func (f *feed) figures() *figures.Figures {
	made := &figures.Figures{Up: true, Restarts: f.restarts, Taken: time.Unix(int64(f.minute)*60, 0), Clock: float64(f.minute) * 60}
	for name, n := range f.counts {
		io := figures.IO{Read: figures.Operation{Count: n, Bytes: n * 4096, Latency: float64(n) * 200e-6}}
		made.Volumes = append(made.Volumes, figures.Volume{Store: "lvs0", Name: name, UUID: "uuid-" + name, IO: io, HasIO: true})
	}
	made.Bdevs = append(made.Bdevs, figures.Bdev{Name: "disk"})
	return made
}

func (f *feed) of(name string) []Sample {
	if list := f.history.Of(name); len(list) == 1 {
		return list[0].Samples
	}
	return nil
}

func TestRatesAreComputedBetweenReads(t *testing.T) {
	f := newFeed()
	f.next(1, map[string]uint64{"a": 1_000_000, "idle": 0})
	assert.Empty(t, f.of("uuid-a"), "nothing is known about the time before the first reading")
	f.next(1, map[string]uint64{"a": 600})
	f.next(2, map[string]uint64{"a": 1200})
	f.next(1, nil)
	list := f.history.Of("lvs0/a")
	require.Len(t, list, 1)
	assert.Equal(t, "uuid-a", list[0].Name)
	assert.Equal(t, "lvs0/a", list[0].Alias)
	samples := list[0].Samples
	require.Len(t, samples, 3)
	assert.Equal(t, Sample{At: time.Unix(12*60, 0), Read: Rates{PerSecond: 10, BytesPerSecond: 40960, Latency: samples[0].Read.Latency}}, samples[0])
	assert.InDelta(t, 200, samples[0].Read.Latency, 0.01)
	assert.InDelta(t, 10, samples[1].Read.PerSecond, 0.01, "of two minutes")
	assert.Zero(t, samples[2].Read)
	assert.Empty(t, f.of("uuid-idle"))
	assert.Nil(t, f.history.Of("uuid-none"))
	assert.Nil(t, f.history.Of(""))
	assert.Empty(t, f.history.Latest())
	f.next(1, map[string]uint64{"a": 60, "idle": 0})
	require.Len(t, f.history.Latest(), 1)
	assert.Len(t, f.history.Latest()[0].Samples, 1)
	assert.InDelta(t, 1, f.history.Latest()[0].Samples[0].Read.PerSecond, 0.01)
}

// Even the latency of a single operation appears in the history.
func TestLatencyIsKnownAfterOneOperation(t *testing.T) {
	f := newFeed()
	f.next(1, map[string]uint64{"a": 60})
	f.next(1, map[string]uint64{"a": 1})
	samples := f.of("uuid-a")
	require.Len(t, samples, 1)
	assert.InDelta(t, 200, samples[0].Read.Latency, 0.01)
	assert.Zero(t, samples[0].Write.Latency, "there was no operation")
}

// A bdev with a single operation in an hour has a history, whether it was a read or a write.
func TestSingleOperationIsKept(t *testing.T) {
	for _, write := range []bool{false, true} {
		f := newFeed()
		for _, n := range []uint64{60, 1, 0, 0} {
			f.add(1, map[string]uint64{"a": n})
			now := f.figures()
			if write {
				for i, v := range now.Volumes {
					now.Volumes[i].IO = figures.IO{Write: v.IO.Read}
				}
			}
			f.history.Note(now, nil)
		}
		samples := f.of("uuid-a")
		require.Len(t, samples, 3, "writes %v", write)
		assert.InDelta(t, 1.0/60, samples[0].Read.PerSecond+samples[0].Write.PerSecond, 0.001)
		assert.Equal(t, write, samples[0].Write.PerSecond > 0)
	}
}

func TestHistoryCoversOneHour(t *testing.T) {
	f := newFeed()
	for range 20 {
		f.next(1, map[string]uint64{"early": 60, "late": 0})
	}
	f.next(1, map[string]uint64{"late": 120})
	samples := f.of("uuid-late")
	require.Len(t, samples, 20, "with its idle minutes before")
	assert.Zero(t, samples[18].Read)
	assert.InDelta(t, 2, samples[19].Read.PerSecond, 0.01)
	for range Kept - 1 {
		f.next(1, map[string]uint64{"late": 120})
	}
	samples = f.of("uuid-late")
	require.Len(t, samples, Kept)
	assert.Equal(t, time.Unix(int64(f.minute-Kept+1)*60, 0), samples[0].At)
	assert.Empty(t, f.of("uuid-early"), "idle for an hour")
	assert.Equal(t, 1, f.history.sampled)
}

// Rates that would be wrong, such as those of a new bdev, are omitted.
func TestUnknownRatesAreOmitted(t *testing.T) {
	for name, change := range map[string]func(*feed){
		"the target restarted":       func(f *feed) { f.restarts++; f.counts["a"] = 0; f.next(1, map[string]uint64{"a": 5000}) },
		"the target was unreachable": func(f *feed) { f.history.Note(&figures.Figures{}, nil); f.next(9, map[string]uint64{"a": 60}) },
		"its counters were reset":    func(f *feed) { f.counts["a"] = 0; f.next(1, map[string]uint64{"a": 5}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFeed()
			f.next(1, map[string]uint64{"a": 60})
			f.next(1, map[string]uint64{"a": 60})
			change(f)
			require.Len(t, f.of("uuid-a"), 1)
			f.next(1, map[string]uint64{"a": 180})
			samples := f.of("uuid-a")
			require.Len(t, samples, 2)
			assert.InDelta(t, 3, samples[1].Read.PerSecond, 0.01)
			assert.Equal(t, time.Unix(int64(f.minute)*60, 0), samples[1].At)
		})
	}
	f := newFeed()
	f.next(1, nil)
	f.next(1, nil)
	f.next(1, map[string]uint64{"new": 1000})
	assert.Empty(t, f.of("uuid-new"), "the time of the bdev's creation is unknown")
	delete(f.counts, "new")
	f.next(1, nil)
	assert.Nil(t, f.history.Of("uuid-new"), "deleted")
}

func TestHistorySizeIsLimited(t *testing.T) {
	f := newFeed()
	busy := map[string]uint64{}
	for i := range maxBdevs + 10 {
		busy[fmt.Sprint(i)] = 60
	}
	for range 3 {
		f.next(1, busy)
	}
	assert.Len(t, f.history.Latest(), maxBdevs)
	clear(f.counts)
	f.next(1, map[string]uint64{"b": 0})
	f.next(1, map[string]uint64{"b": 60})
	assert.Len(t, f.history.Latest(), 1, "deleted bdevs make room for others")
}
