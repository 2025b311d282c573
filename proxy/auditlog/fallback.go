package auditlog

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// A Fallback is a handler that passes lines to First. It passes lines that First cannot write to
// Second, so that no call goes unlogged.
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

// WithAttrs implements slog.Handler. The log of calls uses no common attributes.
func (f *Fallback) WithAttrs([]slog.Attr) slog.Handler { return f }

// WithGroup implements slog.Handler. The log of calls uses no groups.
func (f *Fallback) WithGroup(string) slog.Handler { return f }

// Handle implements slog.Handler. In a series of failures, it reports the first one and the
// recovery.
func (f *Fallback) Handle(ctx context.Context, r slog.Record) error {
	err := f.First.Handle(ctx, r.Clone())
	if err == nil {
		if f.failing.CompareAndSwap(true, false) {
			slog.New(f.Second).Info("the log of calls is written to its destination again")
		}
		return nil
	}
	if f.failing.CompareAndSwap(false, true) {
		slog.New(f.Second).Error("the log of calls cannot be written: its lines appear here until it can be written", "error", err)
	}
	f.Failed()
	return f.Second.Handle(ctx, r)
}
