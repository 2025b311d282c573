package auditlog

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// An auditThrottle limits the log lines of unauthenticated requests, which could otherwise fill the
// disk. The first requests of each source have a line each. The others are counted, and share one
// line for each source after a minute. Requests of authenticated users are never merged.
type auditThrottle struct {
	log *slog.Logger

	mu      sync.Mutex
	began   time.Time // of the window; zero: none is open
	lines   int       // written in it
	sources map[netip.Prefix]*throttledSource
	end     *time.Timer
}

// A throttledSource counts the requests of one source.
type throttledSource struct {
	lines int      // requests with a line of their own
	count int      // requests without
	users []string // existing users that these requests name
}

const (
	throttleWindow = time.Minute
	linesPerSource = 10  // lines of its own
	linesPerWindow = 100 // lines of all sources together
	maxSources     = 64  // counted separately
	maxUsersNamed  = 8   // in one line
	mergedMessage  = "unauthenticated calls"
)

// otherSources is one entry for all sources beyond maxSources.
var otherSources netip.Prefix

// admit reports whether an unauthenticated request gets a line of its own. user is the existing user
// that it names, or "".
func (t *auditThrottle) admit(source netip.Addr, user string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began.IsZero() {
		t.began, t.lines, t.sources = time.Now(), 0, map[netip.Prefix]*throttledSource{}
		t.end = time.AfterFunc(throttleWindow, t.flush)
	}
	m := t.source(source)
	if m.lines < linesPerSource && t.lines < linesPerWindow {
		m.lines++
		t.lines++
		return true
	}
	m.count++
	if user != "" && len(m.users) < maxUsersNamed && !slices.Contains(m.users, user) {
		m.users = append(m.users, user)
	}
	return false
}

// source returns the entry of an address. All addresses of an IPv6 network of 64 bits
// are one source, because one host may use all of them.
func (t *auditThrottle) source(address netip.Addr) *throttledSource {
	address = address.Unmap().WithZone("")
	prefix, _ := address.Prefix(min(address.BitLen(), 64))
	m, ok := t.sources[prefix]
	if !ok && len(t.sources) >= maxSources {
		prefix = otherSources
		m, ok = t.sources[prefix]
	}
	if !ok {
		m = &throttledSource{}
		t.sources[prefix] = m
	}
	return m
}

// flush writes the lines that requests share, and ends the window.
func (t *auditThrottle) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began.IsZero() {
		return
	}
	t.end.Stop()
	for _, prefix := range slices.SortedFunc(maps.Keys(t.sources), comparePrefixes) {
		m := t.sources[prefix]
		if m.count == 0 {
			continue
		}
		t.log.Warn(mergedMessage, "source", nameOf(prefix), "count", m.count, "users", m.users, "seconds", int(time.Since(t.began).Seconds()))
	}
	t.began, t.sources = time.Time{}, nil
}

func comparePrefixes(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }

func nameOf(prefix netip.Prefix) string {
	switch {
	case prefix == otherSources:
		return "others"
	case prefix.IsSingleIP():
		return prefix.Addr().String()
	}
	return prefix.String()
}
