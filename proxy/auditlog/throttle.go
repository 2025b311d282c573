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
	lines int      // of its own
	count int      // requests without
	users []string // whose name was given, of those who exist
}

const (
	throttleWindow = time.Minute
	linesPerSource = 10  // lines of its own
	linesPerWindow = 100 // lines of all sources together
	maxSources     = 64  // told apart
	maxUsersNamed  = 8   // named in a line
	mergedMessage  = "unauthenticated calls"
)

// otherSources stand together for those that came later than as many as are told apart.
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

// source finds what is counted of an address. The addresses of an IPv6 network of 64
// bits count as one source, as one host may use all of them.
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

// flush writes what was merged, and ends the window.
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
