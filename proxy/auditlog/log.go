package auditlog

import (
	"context"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A Log writes entries. It is safe for concurrent use.
type Log struct {
	// Feed contains the most recent entries.
	Feed Feed

	log      *slog.Logger
	schema   *rpcschema.Document
	throttle auditThrottle
}

// New returns a Log that writes to log. The schema determines which parameters name objects.
func New(log *slog.Logger, schema *rpcschema.Document) *Log {
	return &Log{log: log, schema: schema, throttle: auditThrottle{log: log}}
}

// An Outcome reports how an entry was written.
type Outcome int

// These are the possible outcomes.
const (
	Written Outcome = iota
	Merged          // counted in a line that several unauthenticated calls share
	Hidden          // suppressed by the log's level
)

// Write writes an entry as one line. Calls that were not executed have level WARN. Several
// unauthenticated calls may share a line (see [Log.Flush]).
func (l *Log) Write(e *Entry) Outcome {
	if e.Decision == Unauthenticated && !l.throttle.admit(e.Source.throttled(), e.User) {
		return Merged
	}
	level := e.level()
	logged, kept := l.log.Enabled(context.Background(), level), l.Feed.enabled.Load()
	if !logged && !kept {
		return Hidden
	}
	attrs := e.attrs(l.schema)
	if kept {
		l.Feed.add(time.Now(), level, attrs)
	}
	if !logged {
		return Hidden
	}
	l.log.LogAttrs(context.Background(), level, message, attrs...)
	return Written
}

// Flush immediately writes the lines that unauthenticated calls share, rather than a minute after
// the first of these calls.
func (l *Log) Flush() { l.throttle.flush() }
