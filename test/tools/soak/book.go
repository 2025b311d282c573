package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// A book reads the proxy's log while the proxy is writing it, and collects events, statistics and
// violations of the soak's expectations.
type book struct {
	copy    io.Writer // receives a copy of the log; may be nil
	mu      sync.Mutex
	line    []byte
	last    [][]byte          // the last lines
	users   map[string]string // by request id, of the latest requests that logged was not called for
	order   []string          // the ids in users, oldest first
	events  map[string]int    // log lines by message
	errors  int               // log lines at level ERROR, except refused reloads
	entries map[string]int    // log entries of calls, by user, except the openings of streams
	tallies map[string]*tally

	mostStreams int64    // largest number open at once
	wrongs      []string // the first violations
	nWrong      int      // the number of violations
}

// A tally counts one user's calls by outcome.
type tally struct {
	calls, ok, spdk, away, busy, other int
	slowest                            time.Duration
	latencies                          []time.Duration // a sample, of calls while the target was up
}

// remembered limits the number of ids in users, because those of hostile clients are never removed.
const remembered = 1 << 16

func newBook() *book {
	return &book{users: map[string]string{}, events: map[string]int{}, entries: map[string]int{}, tallies: map[string]*tally{}}
}

// Write implements io.Writer for the proxy's log.
func (b *book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.copy != nil {
		if n, err := b.copy.Write(p); err != nil {
			return n, err
		}
	}
	b.line = append(b.line, p...)
	for {
		line, rest, whole := bytes.Cut(b.line, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		b.read(line)
		b.line = append(b.line[:0:0], rest...)
	}
}

func (b *book) read(line []byte) {
	if b.last = append(b.last, slices.Clone(line)); len(b.last) > 20 {
		b.last = b.last[1:]
	}
	var entry struct {
		Level, Msg, User, Method string
		RequestID                string `json:"request_id"`
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		b.note("a log line is not JSON: %q", line)
		return
	}
	b.events[entry.Msg]++
	switch {
	case entry.Msg == "panic":
		b.note("%s", line)
	case entry.Level == "ERROR" && entry.Msg != refusedReload:
		b.errors++
		b.note("%s", line)
	}
	if entry.Msg == "call" {
		if b.users[entry.RequestID] = entry.User; entry.Method != "stream.open" {
			b.entries[entry.User]++
		}
		if b.order = append(b.order, entry.RequestID); len(b.order) > remembered {
			delete(b.users, b.order[0])
			b.order = b.order[1:]
		}
	}
}

const refusedReload = "reload refused, the old configuration remains in effect"

// logged returns the user that was logged for a request, and forgets the request. It waits for the
// log line.
func (b *book) logged(id string) (user string, ok bool) {
	for range 2000 { // the line may still be in the pipe
		b.mu.Lock()
		user, ok = b.users[id]
		delete(b.users, id)
		b.mu.Unlock()
		if ok {
			return user, true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return "", false
}

func (b *book) tail() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Join(b.last, []byte("\n"))
}

// wrong records a violation.
func (b *book) wrong(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(format, args...)
}

// note records a violation while b.mu is held.
func (b *book) note(format string, args ...any) {
	b.nWrong++
	if len(b.wrongs) < 20 {
		b.wrongs = append(b.wrongs, fmt.Sprintf(format, args...))
	}
}

func (b *book) tally(user string, r reply, took time.Duration, slow bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[user]
	if t == nil {
		t = &tally{}
		b.tallies[user] = t
	}
	t.calls++
	switch {
	case r.ok():
		t.ok++
	case r.status == 200:
		t.spdk++
	case r.status == 502 || r.status == 504:
		t.away++
	case r.status == 429:
		t.busy++
	default:
		t.other++
	}
	if slow {
		return
	}
	t.slowest = max(t.slowest, took)
	if r.targetUp && (len(t.latencies) < 1<<16 || t.calls%16 == 0) {
		t.latencies = append(t.latencies, took)
	}
}

// quantile returns a quantile of latencies.
func quantile(latencies []time.Duration, share float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
