package auditlog

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// An auditThrottle limits the log lines for unauthenticated requests, which could otherwise fill
// the disk. Each of the first requests from a source gets its own line. Further requests from the
// source are only counted, and share one line after a minute. Requests from authenticated users are
// never merged.
type auditThrottle struct {
	log *slog.Logger

	mu      sync.Mutex
	began   time.Time // beginning of the window; zero if none is open
	lines   int       // number of lines written in the window
	sources map[string]*throttledSource
	end     *time.Timer
}

// A throttledSource counts the requests from one source.
type throttledSource struct {
	lines int      // number of requests that got their own line
	count int      // number of requests without their own line
	users []string // existing users named in these requests
}

const (
	throttleWindow = time.Minute
	linesPerSource = 10  // maximum number of lines for one source
	linesPerWindow = 100 // maximum number of lines for all sources together
	maxSources     = 64  // maximum number of sources counted separately
	maxUsersNamed  = 8   // maximum number of users named in one log line
	mergedMessage  = "unauthenticated calls"
)

// otherSources is one entry for all sources beyond maxSources.
const otherSources = "others"

// admit reports whether an unauthenticated request gets its own line. user is the existing user
// that the request named, or "".
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
