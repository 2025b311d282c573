package auditlog

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// A Fallback is a handler that passes each line to First and, if First cannot write the line, to
// Second, so that every call is logged.
type Fallback struct {
	First, Second slog.Handler
	// Failed is called for each line that First could not write.
	Failed func()

	failing atomic.Bool
}

// Enabled implements slog.Handler.
func (f *Fallback) Enabled(ctx context.Context, level slog.Level) bool {
	return f.First.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler. It ignores the attributes, because the audit log has no
// attributes common to all lines.
func (f *Fallback) WithAttrs([]slog.Attr) slog.Handler { return f }

// WithGroup implements slog.Handler. It ignores the group, because the audit log has no groups.
func (f *Fallback) WithGroup(string) slog.Handler { return f }

// Handle implements slog.Handler. In a series of failures, it reports only the first failure and
// the recovery.
func (f *Fallback) Handle(ctx context.Context, r slog.Record) error {
	err := f.First.Handle(ctx, r.Clone())
	if err == nil {
		if f.failing.CompareAndSwap(true, false) {
			slog.New(f.Second).Info("the audit log is written to its destination again")
		}
		return nil
	}
	if f.failing.CompareAndSwap(false, true) {
		slog.New(f.Second).Error("the audit log cannot be written: its lines appear here until it can be written", "error", err)
	}
	f.Failed()
	return f.Second.Handle(ctx, r)
}
