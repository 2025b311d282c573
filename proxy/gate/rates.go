package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// maxPace is the longest time that a call may wait because of its user's rate limit.
const maxPace = time.Second

// A rateError means that a user makes more calls per second than allowed.
type rateError struct{ perSecond int }

func (e *rateError) Error() string {
	return fmt.Sprintf("this user may make %d calls per second", e.perSecond)
}

// callRates limits how many calls each user makes per second. A user may make that many calls in a
// burst; further calls are spaced evenly. The zero value imposes no limit.
type callRates struct {
	mu       sync.RWMutex
	each     int            // 0 means no limit
	users    map[string]int // limits of users with their own limit
	limiters map[string]*userRate
}

// A userRate limits and counts a user's calls.
type userRate struct {
	*rate.Limiter

	mu     sync.Mutex
	counts [10]int // calls in the last second, by tenths of a second
	tenth  int64   // number of the latest tenth of a second since 1970
}

// note counts a call that the rate limit has allowed.
func (u *userRate) note(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.advance(now)
	u.counts[u.tenth%int64(len(u.counts))]++
}

// count returns how many calls were made in the last second.
func (u *userRate) count(now time.Time) (sum int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.advance(now)
	for _, n := range u.counts {
		sum += n
	}
	return sum
}

// advance drops the counts of calls that are more than a second old.
func (u *userRate) advance(now time.Time) {
	tenth := now.UnixMilli() / 100
	for range min(tenth-u.tenth, int64(len(u.counts))) {
		u.tenth++
		u.counts[u.tenth%int64(len(u.counts))] = 0
	}
	u.tenth = max(u.tenth, tenth)
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

// limitOf is like perSecond, but for callers that do not hold r.mu.
func (r *callRates) limitOf(user string) int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.perSecond(user)
}

// limiterOf returns the limiter of a configured user, or nil if there is no limit.
func (r *callRates) limiterOf(user string) *userRate {
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
		r.limiters = map[string]*userRate{}
	}
	l = &userRate{Limiter: rate.NewLimiter(rate.Limit(n), n)}
	r.limiters[user] = l
	return l
}

// wait waits until the user may make a call. If that would take too long, it immediately returns an
// error.
func (r *callRates) wait(ctx context.Context, user string) error {
	l := r.limiterOf(user)
	if l == nil {
		return nil
	}
	turn := l.Reserve()
	delay := turn.Delay()
	switch {
	case delay == 0:
		l.note(time.Now())
		return nil
	case delay > maxPace:
		turn.Cancel()
		return &rateError{l.Burst()}
	}
	select {
	case <-time.After(delay):
		l.note(time.Now())
		return nil
	case <-ctx.Done():
		turn.Cancel()
		return ErrGone
	}
}

// Limits serves spdkgate_get_limits.
func (g *Gate) Limits(_ context.Context, r *Request) (any, error) {
	load := g.Target.LoadOf(r.User)
	limits := spdkrpc.ProxyLimits{
		User:         r.User,
		CallsRunning: uint64(load.InFlight), CallsRunningLimit: uint64(load.MaxInFlight),
		CallsWaiting: uint64(load.Waiting), CallsWaitingLimit: uint64(load.MaxWaiting),
	}
	if l := g.rates.limiterOf(r.User); l != nil {
		limits.CallsPerSecond, limits.CallsPerSecondLimit = new(uint64(l.count(time.Now()))), new(uint64(l.Burst()))
	}
	return limits, nil
}

// PerSecond returns how many calls per second a user may make; 0 means no limit.
func (g *Gate) PerSecond(user string) int { return g.rates.limitOf(user) }

// SpendRate exhausts a user's rate limit, so that the user cannot make any call for a minute. It is
// for tests.
func (g *Gate) SpendRate(user string) {
	limiter := g.rates.limiterOf(user)
	for range 60 * limiter.Burst() {
		limiter.Reserve()
	}
}
