package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxPace is the longest time that a call waits for its user's rate limit.
const maxPace = time.Second

// A rateError means that a user makes more calls per second than allowed.
type rateError struct{ perSecond int }

func (e *rateError) Error() string {
	return fmt.Sprintf("this user may make %d calls per second", e.perSecond)
}

// callRates limits how many calls each user makes per second. A user may make that many calls in a
// burst; further calls are spaced evenly. The zero value sets no limit.
type callRates struct {
	mu       sync.RWMutex
	each     int            // 0: any number
	users    map[string]int // with another limit
	limiters map[string]*rate.Limiter
}

// set replaces the limits.
func (r *callRates) set(each int, users map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.each, r.users = each, users
	for name, l := range r.limiters {
		if n := r.perSecond(name); n > 0 {
			l.SetLimit(rate.Limit(n))
			l.SetBurst(n)
		} else {
			delete(r.limiters, name)
		}
	}
}

func (r *callRates) perSecond(user string) int {
	if n, ok := r.users[user]; ok {
		return n
	}
	return r.each
}

// limiterOf returns the limiter of a configured user, or nil if there is no limit.
func (r *callRates) limiterOf(user string) *rate.Limiter {
	r.mu.RLock()
	n, l := r.perSecond(user), r.limiters[user]
	r.mu.RUnlock()
	if n == 0 || l != nil {
		return l
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.perSecond(user)
	if l = r.limiters[user]; l != nil || n == 0 {
		return l
	}
	if r.limiters == nil {
		r.limiters = map[string]*rate.Limiter{}
	}
	l = rate.NewLimiter(rate.Limit(n), n)
	r.limiters[user] = l
	return l
}

// wait waits until the user may make a call, or returns an error at once if that would take too
// long.
func (r *callRates) wait(ctx context.Context, user string) error {
	l := r.limiterOf(user)
	if l == nil {
		return nil
	}
	turn := l.Reserve()
	delay := turn.Delay()
	switch {
	case delay == 0:
		return nil
	case delay > maxPace:
		turn.Cancel()
		return &rateError{l.Burst()}
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		turn.Cancel()
		return ErrGone
	}
}

// SpendRate uses up a user's rate limit, for tests: the user may make no further call for a minute.
func (g *Gate) SpendRate(user string) {
	limiter := g.rates.limiterOf(user)
	for range 60 * limiter.Burst() {
		limiter.Reserve()
	}
}
