package auditlog

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// A Feed keeps the most recent entries of a Log for watchers, regardless of the log's level. It is
// safe for concurrent use.
type Feed struct {
	enabled atomic.Bool

	mu    sync.Mutex
	lines []Line // lines first to next-1; line n is at index n modulo FeedLines
	first uint64
	next  uint64
	size  int           // total size of the lines, in bytes
	grown chan struct{} // closed when a line is added; nil if no watcher is waiting
}

// These constants limit a Feed.
const (
	FeedLines = 1000
	feedBytes = 8 << 20
	lineBytes = 1 << 10 // estimated size of a line without long values
)

// A Line is an entry as it was written.
type Line struct {
	Number uint64 // consecutive, starting at 0

	at    time.Time
	level slog.Level
	attrs []slog.Attr
	size  int
}

// SetEnabled sets whether the Feed keeps entries. Disabling a Feed drops its entries.
func (f *Feed) SetEnabled(enabled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.enabled.Store(enabled)
	if !enabled {
		f.lines, f.first, f.size = nil, f.next, 0
	}
}

// add appends a line and, if necessary, drops the oldest lines.
func (f *Feed) add(at time.Time, level slog.Level, attrs []slog.Attr) {
	l := Line{at: at, level: level, attrs: attrs, size: lineBytes}
	for _, a := range attrs {
		if a.Key != keyParams {
			continue
		}
		if params, ok := a.Value.Any().(loggedParams); ok {
			l.size += len(params)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.enabled.Load() {
		return
	}
	if f.lines == nil {
		f.lines = make([]Line, FeedLines)
	}
	for f.next-f.first >= FeedLines || f.size+l.size > feedBytes && f.first < f.next {
		oldest := &f.lines[f.first%FeedLines]
		f.size -= oldest.size
		*oldest = Line{}
		f.first++
	}
	l.Number = f.next
	f.lines[f.next%FeedLines] = l
	f.size += l.size
	f.next++
	if f.grown != nil {
		close(f.grown)
		f.grown = nil
	}
}

// From returns the lines whose number is at least number. missed is the number of these lines that
// have already been dropped, and next is the number of the next line. grown is closed when a line
// is added.
func (f *Feed) From(number uint64) (lines []Line, missed, next uint64, grown <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if number < f.first {
		missed, number = f.first-number, f.first
	}
	for ; number < f.next; number++ {
		lines = append(lines, f.lines[number%FeedLines])
	}
	if f.grown == nil {
		f.grown = make(chan struct{})
	}
	return lines, missed, f.next, f.grown
}

// JSON returns the line as it appears in the JSON log.
func (l Line) JSON() []byte {
	var b bytes.Buffer
	r := slog.NewRecord(l.at, l.level, message, 0)
	r.AddAttrs(l.attrs...)
	if err := slog.NewJSONHandler(printable.NewWriter(&b), nil).Handle(context.Background(), r); err != nil {
		// impossible: all values can be encoded, and a buffer accepts every write
		panic(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
