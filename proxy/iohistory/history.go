// Package iohistory keeps the I/O rates of a target's bdevs over the last hour, without a database.
// Its memory is bounded: a bdev takes some bytes while it has no I/O and 1.5 KiB otherwise, and at
// most 4,096 bdevs have a history at the same time.
//
// The package must not depend on how figures are read, who requests a history, or how it is shown.
package iohistory

import (
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

const (
	// Interval is the time between two samples.
	Interval = time.Minute
	// Kept is the number of samples per bdev.
	Kept = 60
	// maxGap is the longest time that one sample may cover. After a longer gap, such as an outage
	// of the target, mean rates would be misleading.
	maxGap = 3 * Interval
	// maxBdevs bounds the number of bdevs with samples.
	maxBdevs = 4096
)

// A Sample holds the rates between two reads of the counters.
type Sample struct {
	At          time.Time // end of the interval
	Read, Write Rates
}

// Rates holds the rates of one kind of operation.
type Rates struct {
	PerSecond, BytesPerSecond float32
	Latency                   float32 // mean, in microseconds; 0 without operations
}

// A Bdev is a bdev with its samples, oldest first.
type Bdev struct {
	Name    string // as SPDK lists it: a UUID for a volume
	Alias   string // LVSTORE/LVOL, for a volume
	Samples []Sample
}

// A History is safe for concurrent use.
type History struct {
	mu       sync.Mutex
	clock    float64 // the target's clock at the last read
	restarts int
	times    []time.Time // ends of the last intervals, at most Kept
	bdevs    map[string]*series
	sampled  int // bdevs with samples
}

// A series holds the samples and the last counters of one bdev.
type series struct {
	alias   string
	last    figures.IO
	seen    bool // in the current read
	samples []measured
}

// A measured is a Sample without its time.
type measured struct {
	read, write Rates
	unknown     bool // the bdev was created, or its counters were reset, in the interval
}

// New returns an empty History.
func New() *History { return &History{bdevs: map[string]*series{}} }

// Note adds the counters that were read from a target. It ignores figures of a target that did not
// respond.
func (h *History) Note(f *figures.Figures) {
	if f == nil || !f.Up || f.Clock == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
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
			h.note(v.UUID, v.Store+"/"+v.Name, v.IO, known, seconds)
		}
	}
	for _, b := range f.Bdevs {
		h.note(b.Name, "", b.IO, known, seconds)
	}
	for name, s := range h.bdevs {
		if !s.seen {
			h.drop(s)
			delete(h.bdevs, name)
		}
	}
}

// note adds the counters of one bdev.
func (h *History) note(name, alias string, io figures.IO, known bool, seconds float64) {
	s, exists := h.bdevs[name]
	if !exists {
		s = &series{}
		h.bdevs[name] = s
	}
	before := s.last
	s.alias, s.last, s.seen = alias, io, true
	if !known {
		return
	}
	m := measured{unknown: !exists}
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
	default: // its first I/O; it had none until now
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

// drop discards the samples of a bdev.
func (h *History) drop(s *series) {
	if s.samples != nil {
		h.sampled--
		s.samples = nil
	}
}

// rates returns the rates between two counters, or false if they were reset in the meantime.
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

// Of returns the samples of a bdev, which may be named by its alias. A bdev without I/O in the last
// hour has none.
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
	return []Bdev{{Name: name, Alias: s.alias, Samples: h.since(s, 0)}}
}

// Latest returns each bdev that had I/O in the last interval, with the sample of that interval.
func (h *History) Latest() (list []Bdev) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, s := range h.bdevs {
		if n := len(s.samples); n > 0 && (s.samples[n-1].read.PerSecond > 0 || s.samples[n-1].write.PerSecond > 0) {
			list = append(list, Bdev{Name: name, Alias: s.alias, Samples: h.since(s, n-1)})
		}
	}
	return list
}

// since returns the known samples of a series from an index on.
func (h *History) since(s *series, from int) (list []Sample) {
	offset := len(h.times) - len(s.samples)
	for i := from; i < len(s.samples); i++ {
		if m := s.samples[i]; !m.unknown {
			list = append(list, Sample{At: h.times[offset+i], Read: m.read, Write: m.write})
		}
	}
	return list
}
