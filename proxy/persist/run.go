package persist

import (
	"context"
	"time"
)

const (
	// After a read, the saver pauses for at least pauseFactor times the read's duration, because
	// SPDK does nothing else while it reports its configuration.
	pauseFactor = 50
	maxRetry    = 15 * time.Second
	// missingInterval is the interval between reads of a target that lacks saved objects. The saver
	// repeats these reads because a disk may reappear without a call through the proxy.
	missingInterval = 15 * time.Second
)

// Run saves the configuration until ctx ends: at the start, because there may have been earlier
// changes; after each change; and after a restart of the target. When ctx ends, Run saves any
// unsaved changes within finalTimeout.
func (s *Saver) Run(ctx context.Context, finalTimeout time.Duration) {
	watch := time.NewTicker(s.opts.Watch)
	defer watch.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	var retry time.Duration
	for {
		select {
		case <-ctx.Done():
			if s.Status().Pending {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalTimeout)
				defer cancel()
				_ = s.Save(ctx, false) // Save logs its error
			}
			return
		case <-watch.C:
			if retry == 0 && !s.processCompared() {
				next.Reset(0)
			}
		case <-s.wake:
			if retry == 0 {
				next.Reset(s.due())
			}
		case <-next.C:
			err := s.Save(ctx, false)
			switch now := s.Status(); {
			case err != nil:
				retry = min(max(2*retry, s.opts.Retry), maxRetry)
				next.Reset(retry)
			case now.Unsettled:
				retry = 0
				next.Reset(max(s.opts.Settle/20, pauseFactor*s.lastCost()))
			case now.Pending:
				retry = 0
				next.Reset(s.due())
			case len(now.Missing) > 0:
				retry = 0
				next.Reset(max(missingInterval, pauseFactor*s.lastCost()))
			default:
				retry = 0
			}
		}
	}
}

// due returns how long to wait before saving. A save is due Options.After after the last change,
// but at most Options.AtLatest after the first. Both times are longer after a slow read.
func (s *Saver) due() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := max(s.opts.After, pauseFactor*s.cost)
	at := s.last.Add(after)
	if latest := s.first.Add(max(s.opts.AtLatest, after)); latest.Before(at) {
		at = latest
	}
	return max(0, time.Until(at))
}

func (s *Saver) lastCost() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cost
}
