package auditlog

import (
	"log/slog"
	"maps"
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
	sources map[string]*throttledSource
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
const otherSources = "others"

// admit reports whether an unauthenticated request gets a line of its own. user is the existing
// user that it names, or "".
func (t *auditThrottle) admit(source, user string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began.IsZero() {
		t.began, t.lines, t.sources = time.Now(), 0, map[string]*throttledSource{}
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

// source returns the entry of a source.
func (t *auditThrottle) source(name string) *throttledSource {
	m, ok := t.sources[name]
	if !ok && len(t.sources) >= maxSources {
		name = otherSources
		m, ok = t.sources[name]
	}
	if !ok {
		m = &throttledSource{}
		t.sources[name] = m
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
	for _, name := range slices.Sorted(maps.Keys(t.sources)) {
		m := t.sources[name]
		if m.count == 0 {
			continue
		}
		t.log.Warn(mergedMessage, "source", name, "count", m.count, "users", m.users, "seconds", int(time.Since(t.began).Seconds()))
	}
	t.began, t.sources = time.Time{}, nil
}
