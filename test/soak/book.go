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

// A book reads the proxy's log as it is written, and keeps what was seen.
type book struct {
	copy    io.Writer // nil: none
	mu      sync.Mutex
	line    []byte
	last    [][]byte          // the last lines
	users   map[string]string // request id → user, until somebody asks, or for a while
	order   []string          // of the ids in users
	events  map[string]int    // log lines by message
	errors  int               // log lines at level ERROR but refused reloads
	tallies map[string]*tally
	wrongs  []string
	nWrong  int
}

// A tally is what one user's calls came to.
type tally struct {
	calls, ok, spdk, away, busy, other int
	slowest                            time.Duration
	latencies                          []time.Duration // of those while the target was up, a sample
}

// remembered bounds the ids that nobody asks for, such as those of hostile clients.
const remembered = 1 << 16

func newBook() *book {
	return &book{users: map[string]string{}, events: map[string]int{}, tallies: map[string]*tally{}}
}

// Write is the log.
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
		Level, Msg, User string
		RequestID        string `json:"request_id"`
	}
	if err := json.Unmarshal(line, &entry); err != nil {
		b.note("a line in the log that is not JSON: %q", line)
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
		b.users[entry.RequestID] = entry.User
		if b.order = append(b.order, entry.RequestID); len(b.order) > remembered {
			delete(b.users, b.order[0])
			b.order = b.order[1:]
		}
	}
}

const refusedReload = "reload refused, the old configuration stays"

// logged tells whom the log names for a request, once.
func (b *book) logged(id string) (user string, ok bool) {
	for range 2000 { // the log comes through a pipe
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

func (b *book) wrong(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(format, args...)
}

// note keeps the first of what is wrong.
func (b *book) note(format string, args ...any) {
	b.nWrong++
	if len(b.wrongs) < 20 {
		b.wrongs = append(b.wrongs, fmt.Sprintf(format, args...))
	}
}

func (b *book) tally(user string, r reply, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tallies[user]
	if t == nil {
		t = &tally{}
		b.tallies[user] = t
	}
	t.calls++
	t.slowest = max(t.slowest, took)
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
	if r.settled && (len(t.latencies) < 1<<16 || t.calls%16 == 0) {
		t.latencies = append(t.latencies, took)
	}
}

// of is a quantile of latencies.
func of(latencies []time.Duration, share float64) time.Duration {
	if len(latencies) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}
