// Package outage limits the log lines for calls that fail for the same reason while a storage
// server is down: the first failure is logged, and the following failures are counted.
//
// Package outage must not depend on what calls do, or on how errors are classified.
package outage

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// firstPause is the time from the first failure to the first log line with a count. The pause
	// doubles with each line, up to longestPause.
	firstPause   = 30 * time.Second
	longestPause = 15 * time.Minute
	// memory is how long an outage is remembered after its last failure, so that a target that
	// fails repeatedly causes only a few log lines.
	memory = 30 * time.Minute
)

// A Log counts failed calls by target and kind. With a nil *Log, every failure is logged. A Log is
// safe for concurrent use.
type Log struct {
	log *slog.Logger
	now func() time.Time

	known   atomic.Int64 // the number of outages, so that calls need no lock while there are no outages
	mu      sync.Mutex
	outages map[key]*outage
}

type key struct{ target, kind string }

type outage struct {
	since, last time.Time
	pause       time.Duration
	due         time.Time // time of the next line with a count
	failures    int
	methods     map[string]bool // the methods that failed
	over        bool            // the target has responded since the last failure
	announced   bool            // a line was logged since the target last responded
}

// New returns a Log. Lines that the Log writes itself, such as counts, go to log. If now is nil,
// the system's clock is used.
func New(log *slog.Logger, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	return &Log{log: log, now: now, outages: map[key]*outage{}}
}

// Failed records that a call failed because of a target. It returns true for the first failure of
// its kind on the target, which the caller must log. text is the text of the error, for lines with
// a count.
func (l *Log) Failed(target, kind, method, text string) (first bool) {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.forget(now)
	o := l.outages[key{target, kind}]
	if o == nil || o.over && !now.Before(o.due) {
		pause := firstPause
		if o != nil {
			pause = min(2*o.pause, longestPause)
		}
		o = &outage{since: now, pause: pause, due: now.Add(pause), methods: map[string]bool{}, announced: true}
		l.outages[key{target, kind}] = o
		l.known.Store(int64(len(l.outages)))
		first = true
	}
	o.failures++
	o.last, o.over, o.methods[method] = now, false, true
	if !first && !now.Before(o.due) {
		o.pause = min(2*o.pause, longestPause)
		o.due, o.announced = now.Add(o.pause), true
		l.log.Warn("calls still fail", "target", target, "kind", kind, "failures", o.failures, "since", o.since.UTC().Format(time.RFC3339), "method", method, "error", text)
	}
	return first
}

// Answered records that a target has responded, which ends all of the target's outages.
func (l *Log) Answered(target string) {
	l.end(target, func(*outage) bool { return true })
}

// Succeeded records that a call that needed a target has succeeded. This ends the target's outages
// in which calls of the same method failed.
func (l *Log) Succeeded(target, method string) {
	l.end(target, func(o *outage) bool { return o.methods[method] })
}

func (l *Log) end(target string, ends func(*outage) bool) {
	if l == nil || l.known.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.forget(now)
	failures, since, announced := 0, now, false
	for k, o := range l.outages {
		if k.target != target || o.over || !ends(o) {
			continue
		}
		failures += o.failures
		if o.since.Before(since) {
			since = o.since
		}
		announced = announced || o.announced
		o.over, o.announced = true, false
	}
	if announced {
		l.log.Info("storage server reachable again", "target", target, "failures", failures, "since", since.UTC().Format(time.RFC3339))
	}
}

// Ongoing reports whether calls currently fail because of a target, or of any target if the name is
// empty.
func (l *Log) Ongoing(target string) bool {
	if l == nil || l.known.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(l.now())
	for k, o := range l.outages {
		if !o.over && (target == "" || k.target == target) {
			return true
		}
	}
	return false
}

// forget removes outages without recent failures. If the target has not responded since the last
// failure, it logs the count.
func (l *Log) forget(now time.Time) {
	byTarget := func(a, b key) int { return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.kind, b.kind)) }
	for _, k := range slices.SortedFunc(maps.Keys(l.outages), byTarget) {
		o := l.outages[k]
		if now.Sub(o.last) < memory {
			continue
		}
		delete(l.outages, k)
		if !o.over && o.failures > 1 {
			l.log.Info("calls no longer fail", "target", k.target, "kind", k.kind, "failures", o.failures, "since", o.since.UTC().Format(time.RFC3339), "last", o.last.UTC().Format(time.RFC3339))
		}
	}
	l.known.Store(int64(len(l.outages)))
}
