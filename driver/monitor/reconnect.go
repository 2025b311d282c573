package monitor

import (
	"context"
	"sync"
	"time"
)

// An attempt is the last attempt to restore a volume's connections. It determines when the next
// attempt may be made if connections are still missing.
type attempt struct {
	next      time.Time
	pause     time.Duration
	succeeded bool
}

// reconnect restores connections that the kernel has given up on, for volumes whose next attempt is
// due.
func (m *Monitor) reconnect(ctx context.Context, found []State) {
	var mu sync.Mutex // guards m.attempts
	var wg sync.WaitGroup
	slots := make(chan struct{}, attemptsAtOnce)
	for _, s := range found {
		id := s.Volume.ID
		if id == "" {
			continue // a call was working on the volume
		}
		mu.Lock()
		last, repeated := m.attempts[id]
		if s.givenUp == 0 {
			delete(m.attempts, id)
		}
		mu.Unlock()
		if s.givenUp == 0 || m.now().Before(last.next) {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			tried, err := m.reconnectVolume(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if !tried || ctx.Err() != nil {
				return
			}
			pause := min(max(2*last.pause, m.interval), longestPause)
			m.attempts[id] = attempt{next: m.now().Add(pause), pause: pause, succeeded: err == nil}
			log, changed := m.log.With("volume", id), !repeated || last.succeeded != (err == nil)
			switch {
			case !changed:
				log.Debug("tried again to restore a volume's connections", "error", err)
			case err == nil:
				log.Info("volume connected again")
			default:
				log.Warn("cannot reconnect a volume; trying again later", "after", pause, "error", err)
			}
		})
	}
	wg.Wait()
}

// reconnectVolume makes one attempt, unless a call is working on the volume or has unstaged it.
func (m *Monitor) reconnectVolume(ctx context.Context, id string) (tried bool, err error) {
	v, release, ok := m.source.Hold(id)
	if !ok {
		return false, nil
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, reconnectTimeout)
	defer cancel()
	err = m.connector.Reconnect(ctx, v.Export)
	m.metrics.Reconnected(err == nil)
	return true, err
}
