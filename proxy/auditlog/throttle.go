package auditlog

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// An auditThrottle limits the log lines for unauthenticated requests, which could otherwise fill
// the disk. The first requests from a source get a line each. Further requests from that source are
// only counted, and share one line after a minute. Requests from authenticated users are never
// merged.
type auditThrottle struct {
	log *slog.Logger

	mu      sync.Mutex
	began   time.Time // beginning of the current window; zero if there is none
	lines   int       // lines written in the window
	sources map[string]*throttledSource
	end     *time.Timer
}

// A throttledSource counts the requests from one source.
type throttledSource struct {
	lines int      // requests with their own line
	count int      // requests without their own line
	users []string // existing users named in these requests
}

const (
	throttleWindow = time.Minute
	linesPerSource = 10  // lines for one source
	linesPerWindow = 100 // lines for all sources together
	maxSources     = 64  // sources counted separately
	maxUsersNamed  = 8   // users named in one line
	mergedMessage  = "unauthenticated calls"
)

// otherSources is the entry shared by all sources beyond maxSources.
const otherSources = "others"

// admit reports whether an unauthenticated request gets its own line. user is the user whom the
// request named, or "" if that user does not exist.
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

// source returns the entry for a source.
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

// flush writes the shared lines, and ends the window.
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
