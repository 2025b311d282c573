package persist

import (
	"context"
	"time"
)

const (
	// share of the target's time that saving may take: it reads the whole
	// configuration, and the target does nothing else meanwhile.
	share    = 50
	maxRetry = 15 * time.Second
	// lookAgain is how soon a target is looked at again that lacks some of what is
	// saved: a disk may come back without a call through the proxy.
	lookAgain = 15 * time.Second
)

// Run saves until ctx ends: at the start, since a change may have come when
// nobody looked, after changes, and when there is another process of the target.
// In the end what is unsaved is saved, within the bound of last.
func (s *Saver) Run(ctx context.Context, last time.Duration) {
	watch := time.NewTicker(s.opts.Watch)
	defer watch.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	var retry time.Duration
	for {
		select {
		case <-ctx.Done():
			if s.Status().Pending {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), last)
				defer cancel()
				_ = s.Save(ctx, false) // it logs
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
				next.Reset(max(s.opts.Settle/20, share*s.lastCost()))
			case now.Pending:
				retry = 0
				next.Reset(s.due())
			case len(now.Missing) > 0:
				retry = 0
				next.Reset(max(lookAgain, share*s.lastCost()))
			default:
				retry = 0
			}
		}
	}
}

// due is how long to wait: for quiet, but not for ever; and longer where the
// target is large.
func (s *Saver) due() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := max(s.opts.After, share*s.cost)
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
