// Package iohistory keeps the I/O rates of a target's bdevs over the last hour, without a database.
// Its memory use is limited. A bdev needs a few bytes while it has no I/O, and 2.2 KiB otherwise.
// At most 4,096 bdevs have a history at the same time. The last latency histograms, of at most 64
// bdevs, occupy another 1 MiB.
//
// The package must not depend on how figures are read, who requests a history, or how a history is
// displayed.
package iohistory

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

const (
	// Interval is the time between samples.
	Interval = time.Minute
	// Kept is the number of samples kept for each bdev.
	Kept = 60
	// maxGap is the longest time that a sample may cover. After a longer gap, such as an outage of
	// the target, average rates would be misleading.
	maxGap = 3 * Interval
	// maxBdevs is the maximum number of bdevs with samples.
	maxBdevs = 4096
	// MaxHistograms is the maximum number of bdevs whose latency histograms are read for a sample.
	// Each read takes 0.4 ms of the target's time.
	MaxHistograms = 64
)

// A Sample contains the I/O rates between two reads of the counters.
type Sample struct {
	At          time.Time // end of the interval
	Read, Write Rates
	// Median and P99 are percentiles of the latencies of all operations, in microseconds. Without a
	// histogram, they are 0.
	Median, P99 float32
}

// HistogramState describes the latency histogram of a bdev.
type HistogramState uint8

// These are the states of a histogram.
const (
	HistogramUnknown HistogramState = iota // not read, or read without a result
	HistogramOff
	HistogramPartial // not used, because the histogram's options make it omit some I/O
	HistogramOn
)

// A Latency is the result of reading a bdev's latency histogram.
type Latency struct {
	Distribution *figures.Distribution
	Err          error
}

// Rates contains the rates of one kind of operation.
type Rates struct {
	PerSecond, BytesPerSecond float32
	Latency                   float32 // mean, in microseconds; 0 if there were no operations
}

// A Bdev contains the samples of a bdev, oldest first.
type Bdev struct {
	Name    string // as listed by SPDK, which lists volumes by UUID
	Alias   string // LVSTORE/LVOL for a volume; "" for other bdevs
	Samples []Sample
	// Histogram is the state of the bdev's latency histogram when the bdev last had I/O.
	Histogram HistogramState
}

// A History contains the samples of a target's bdevs. It is safe for concurrent use.
type History struct {
	mu       sync.Mutex
	clock    float64 // the target's clock at the last read
	restarts int
	times    []time.Time // ends of at most Kept recent intervals
	bdevs    map[string]*series
	sampled  int // number of bdevs with samples
}

// A series contains the samples and the last counters of one bdev.
type series struct {
	alias   string
	last    figures.IO
	seen    bool // whether the current reading contains the bdev
	samples []measured

	histogram HistogramState
	// from the last reading; nil if there has been I/O since then that no reading includes
	latencies *figures.Distribution
}

// A measured is a Sample without its time.
type measured struct {
	read, write Rates
	median, p99 float32
	unknown     bool // the bdev was created, or its counters were reset, during the interval
}

// New returns an empty History.
func New() *History { return &History{bdevs: map[string]*series{}} }

// Busiest returns the names of at most MaxHistograms bdevs that had I/O between the last call of
// Note and the figures. It lists bdevs with histograms known to be enabled first, followed by those
// with the most operations. The caller reads these histograms, and passes them to Note together
// with the figures.
func (h *History) Busiest(f *figures.Figures) (names []string) {
	if f == nil || !f.Up {
		return nil
	}
	type active struct {
		name       string
		on         bool
		operations uint64
	}
	var list []active
	h.mu.Lock()
	defer h.mu.Unlock()
	add := func(name string, io figures.IO) {
		if s := h.bdevs[name]; s != nil {
			// If the counters were reset, the difference wraps around to a huge number, and the
			// bdev counts as busy.
			if n := io.Read.Count - s.last.Read.Count + io.Write.Count - s.last.Write.Count; n > 0 {
				list = append(list, active{name, s.histogram == HistogramOn, n})
			}
		}
	}
	for _, v := range f.Volumes {
		if v.HasIO {
			add(v.UUID, v.IO)
		}
	}
	for _, b := range f.Bdevs {
		add(b.Name, b.IO)
	}
	slices.SortFunc(list, func(a, b active) int {
		if a.on != b.on {
			if a.on {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.operations, a.operations), cmp.Compare(a.name, b.name))
	})
	for _, a := range list[:min(len(list), MaxHistograms)] {
		names = append(names, a.name)
	}
	return names
}

// Note adds the counters, and the latencies by bdev, that were read from a target. It ignores
// figures from a target that did not respond, and figures with the same counters as in the last
// call.
func (h *History) Note(f *figures.Figures, latencies map[string]Latency) {
	if f == nil || !f.Up || f.Clock == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.Clock == h.clock && f.Restarts == h.restarts {
		return // the counters have not been read again
	}
	seconds := f.Clock - h.clock
	known := h.clock > 0 && f.Restarts == h.restarts && seconds > 0 && seconds <= maxGap.Seconds()
	h.clock, h.restarts = f.Clock, f.Restarts
	if known {
		if len(h.times) == Kept {
			h.times = slices.Delete(h.times, 0, 1)
		}
		h.times = append(h.times, f.Taken)
	}
	for _, s := range h.bdevs {
		s.seen = false
	}
	for _, v := range f.Volumes {
		if v.HasIO {
			h.note(v.UUID, v.Store+"/"+v.Name, v.IO, latencies, known, seconds)
		}
	}
	for _, b := range f.Bdevs {
		h.note(b.Name, "", b.IO, latencies, known, seconds)
	}
	for name, s := range h.bdevs {
		if !s.seen {
			h.drop(s)
			delete(h.bdevs, name)
		}
	}
}

// note adds the counters and latencies of one bdev.
func (h *History) note(name, alias string, io figures.IO, latencies map[string]Latency, known bool, seconds float64) {
	s, exists := h.bdevs[name]
	if !exists {
		s = &series{}
		h.bdevs[name] = s
	}
	before := s.last
	s.alias, s.last, s.seen = alias, io, true
	if !known {
		s.latencies = nil
	}
	var median, p99 float32
	if latency, read := latencies[name]; read {
		median, p99 = s.percentiles(latency)
	} else if io != before {
		s.latencies = nil // the next difference would cover several intervals
	}
	if !known {
		return
	}
	m := measured{unknown: !exists, median: median, p99: p99}
	if exists {
		var readOK, writeOK bool
		m.read, readOK = rates(before.Read, io.Read, seconds)
		m.write, writeOK = rates(before.Write, io.Write, seconds)
		m.unknown = !readOK || !writeOK
	}
	idle := !m.unknown && m.read.PerSecond == 0 && m.write.PerSecond == 0
	switch {
	case s.samples != nil:
	case idle || m.unknown || h.sampled == maxBdevs:
		return
	default: // the bdev's first I/O
		h.sampled++
		s.samples = make([]measured, len(h.times)-1, Kept)
	}
	if len(s.samples) == Kept {
		s.samples = slices.Delete(s.samples, 0, 1)
	}
	s.samples = append(s.samples, m)
	if idle && !slices.ContainsFunc(s.samples, func(m measured) bool { return m.read.PerSecond > 0 || m.write.PerSecond > 0 }) {
		h.drop(s)
	}
}

// percentiles stores a new state of the series' histogram. It returns the median and the 99th
// percentile of the latencies since the previous call, in microseconds, or 0 if they are unknown.
func (s *series) percentiles(read Latency) (median, p99 float32) {
	before := s.latencies
	s.latencies = nil
	switch {
	case errors.Is(read.Err, figures.ErrNoHistogram):
		s.histogram = HistogramOff
	case errors.Is(read.Err, figures.ErrPartialHistogram):
		s.histogram = HistogramPartial
	// if the bdev has no I/O channels, SPDK returns an empty histogram even if it is disabled
	case read.Err != nil || read.Distribution.Empty():
		s.histogram = HistogramUnknown
	default:
		s.histogram, s.latencies = HistogramOn, read.Distribution
		if before == nil {
			return 0, 0
		}
		if since, ok := read.Distribution.Since(before); ok {
			return float32(since.Percentile(0.5) * 1e6), float32(since.Percentile(0.99) * 1e6)
		}
	}
	return 0, 0
}

// drop discards the samples of a bdev.
func (h *History) drop(s *series) {
	if s.samples != nil {
		h.sampled--
		s.samples = nil
	}
}

// rates returns the rates between two readings of a counter, or false if the counter was reset in
// between.
func rates(before, after figures.Operation, seconds float64) (Rates, bool) {
	if after.Count < before.Count || after.Bytes < before.Bytes {
		return Rates{}, false
	}
	n := float64(after.Count - before.Count)
	r := Rates{PerSecond: float32(n / seconds), BytesPerSecond: float32(float64(after.Bytes-before.Bytes) / seconds)}
	if n > 0 && after.Latency > before.Latency {
		r.Latency = float32((after.Latency - before.Latency) / n * 1e6)
	}
	return r, true
}

// Of returns the samples of a bdev, which may be given by its alias. A bdev without I/O in the last
// hour has no samples.
func (h *History) Of(name string) []Bdev {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, exists := h.bdevs[name]
	if !exists {
		for uuid, other := range h.bdevs {
			if other.alias == name && name != "" {
				name, s = uuid, other
			}
		}
	}
	if s == nil {
		return nil
	}
	return []Bdev{{Name: name, Alias: s.alias, Histogram: s.histogram, Samples: h.since(s, 0)}}
}

// Latest returns every bdev that had I/O in the last interval, with the sample for that interval.
func (h *History) Latest() (list []Bdev) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, s := range h.bdevs {
		if n := len(s.samples); n > 0 && (s.samples[n-1].read.PerSecond > 0 || s.samples[n-1].write.PerSecond > 0) {
			list = append(list, Bdev{Name: name, Alias: s.alias, Histogram: s.histogram, Samples: h.since(s, n-1)})
		}
	}
	return list
}

// since returns the known samples of a series, starting at an index.
func (h *History) since(s *series, from int) (list []Sample) {
	offset := len(h.times) - len(s.samples)
	for i := from; i < len(s.samples); i++ {
		if m := s.samples[i]; !m.unknown {
			list = append(list, Sample{At: h.times[offset+i], Read: m.read, Write: m.write, Median: m.median, P99: m.p99})
		}
	}
	return list
}
