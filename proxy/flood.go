package proxy

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A flood keeps requests of nobody's from filling the log, and the disk under it:
// anybody can send as many as the network takes. The first ones of each source
// have a line each; the others are counted, and told in one line for each source
// when the minute is over. What is done by users who are known is never merged.
type flood struct {
	log *slog.Logger

	mu      sync.Mutex
	began   time.Time // of the window; zero: none is open
	lines   int       // written in it
	sources map[netip.Prefix]*merged
	end     *time.Timer
}

// A merged source has sent more than gets lines of its own.
type merged struct {
	lines int      // of its own
	count int      // requests without
	users []string // whose name was given, of those who exist
}

const (
	floodWindow     = time.Minute
	floodPerSource  = 10  // lines of its own
	floodLines      = 100 // lines of all sources together
	floodSources    = 64  // told apart
	floodUsers      = 8   // named in a line
	floodLogMessage = "unauthenticated calls"
)

// otherSources stand together for those that came later than as many as are told apart.
var otherSources netip.Prefix

// admit tells whether a request of nobody's has a line of its own. user is the
// one whose name it bears, "" if there is none.
func (f *flood) admit(source netip.Addr, user string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		f.began, f.lines, f.sources = time.Now(), 0, map[netip.Prefix]*merged{}
		f.end = time.AfterFunc(floodWindow, f.tell)
	}
	m := f.of(source)
	if m.lines < floodPerSource && f.lines < floodLines {
		m.lines++
		f.lines++
		return true
	}
	m.count++
	if user != "" && len(m.users) < floodUsers && !slices.Contains(m.users, user) {
		m.users = append(m.users, user)
	}
	return false
}

// of finds a source; whoever has one address of a /64 has them all.
func (f *flood) of(source netip.Addr) *merged {
	source = source.Unmap().WithZone("")
	prefix, _ := source.Prefix(min(source.BitLen(), 64))
	m, ok := f.sources[prefix]
	if !ok && len(f.sources) >= floodSources {
		prefix = otherSources
		m, ok = f.sources[prefix]
	}
	if !ok {
		m = &merged{}
		f.sources[prefix] = m
	}
	return m
}

// tell writes what was merged, and ends the window.
func (f *flood) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		return
	}
	f.end.Stop()
	for _, prefix := range slices.SortedFunc(maps.Keys(f.sources), comparePrefixes) {
		m := f.sources[prefix]
		if m.count == 0 {
			continue
		}
		f.log.Warn(floodLogMessage, "source", nameOf(prefix), "count", m.count, "users", m.users, "seconds", int(time.Since(f.began).Seconds()))
	}
	f.began, f.sources = time.Time{}, nil
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
