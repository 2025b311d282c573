package target

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Limits bound how many calls are under way at once.
type Limits struct {
	Total   int            // of everybody together
	PerUser int            // of one user
	Of      map[string]int // of users to whom PerUser does not apply
}

func (l Limits) of(who string) int {
	n, ok := l.Of[who]
	if !ok {
		n = l.PerUser
	}
	return min(n, l.Total)
}

// waitersPerSlot bounds the memory that waiting calls take.
const waitersPerSlot = 4

// A queue gives out slots, each for one call under way. Nobody may have more of them than their
// limit, nor than are free: n users who take what they can get leave one part in
// n+1 to whoever comes next, even if SPDK never answers any of their calls.
//
// A call that may have none now waits in the wait list of its user. The lists are served
// round-robin, one call each, so that the length of one delays no other. After each
// change slots are given out as long as anybody may have one: so a call whose user may
// have a slot, and has no wait list, passes nobody.
type queue struct {
	mu        sync.Mutex
	limits    Limits
	users     map[string]*user
	sweepAt   int // users known, when those at rest are forgotten
	slots     int
	bytes     int // expected to be answered to them
	waiting   int
	runnable  fifo[*user] // who have calls waiting and are below their limit
	pace      pace
	hasMemory func(user string) bool // see Config.HasMemory
}

// A user has calls under way, or waiting, or lately had.
type user struct {
	name       string
	limit      int
	slots      int
	bytes      int
	waiting    waitList
	isRunnable bool // is in queue.runnable; its wait list may have become empty there

	paceRound     uint64
	sentThisRound int // calls under way that were sent in that round
}

// A slot is the right to have one call under way.
type slot struct {
	*user
	bytes     int
	paceRound uint64
}

// Long answers take memory, of SPDK and of the proxy. So calls that expect them
// are under way only up to these sums, but one of each user always is.
const (
	bytesPerUser = 32 << 20
	bytesInTotal = 256 << 20
)

// restingUsers are remembered, for the next call's sake.
const restingUsers = 1024

func newQueue(l Limits) *queue {
	return &queue{limits: l, users: map[string]*user{}, sweepAt: restingUsers, pace: pace{burst: firstBurst}}
}

// acquire waits for a slot for a call with such an answer; release gives it back. The
// error is a *BusyError, or wraps ErrAbandoned when ctx ended first.
func (q *queue) acquire(ctx context.Context, who string, answer *size, bound time.Duration) (slot, error) {
	q.mu.Lock()
	u := q.user(who)
	if u.waiting.n == 0 && q.mayRun(u, answer.expected()) {
		t := q.grant(u, answer.expected())
		q.mu.Unlock()
		return t, nil
	}
	w, err := q.enter(u, answer)
	q.mu.Unlock()
	if err != nil {
		return slot{}, err
	}

	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err = <-w.done:
	case <-timer.C:
		err = q.leave(w, func() error { return q.busy(u, fmt.Sprintf("none of them ended within %s", bound)) })
	case <-ctx.Done():
		err = q.leave(w, func() error { return fmt.Errorf("%w: %w", ErrAbandoned, ctx.Err()) })
	}
	if err != nil {
		return slot{}, err
	}
	return w.slot, nil
}

// release gives a slot back.
func (q *queue) release(t slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.slots--
	q.bytes -= t.bytes
	t.user.slots--
	t.user.bytes -= t.bytes
	if t.paceRound == t.user.paceRound {
		t.user.sentThisRound--
	}
	q.noteRunnable(t.user)
	q.advance()
}

// setLimits changes the bounds of users; calls under way and waiting stay. The
// total stays as it was made.
func (q *queue) setLimits(l Limits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.Total = q.limits.Total
	q.limits = l
	for _, u := range q.users {
		u.limit = l.of(u.name)
		q.noteRunnable(u)
	}
	q.advance()
}

// user finds a user, or makes one.
func (q *queue) user(who string) *user {
	if u := q.users[who]; u != nil {
		return u
	}
	if len(q.users) >= q.sweepAt {
		maps.DeleteFunc(q.users, func(_ string, u *user) bool { return u.slots == 0 && u.waiting.n == 0 && !u.isRunnable })
		q.sweepAt = max(restingUsers, 2*len(q.users)) // so that sweeping costs each newcomer little
	}
	u := &user{name: who, limit: q.limits.of(who)}
	q.users[who] = u
	return u
}

// enter appends a call to its user's wait list. When all lists together are as long as
// they may be, the longest one loses its last call: who floods makes room for others.
func (q *queue) enter(u *user, answer *size) (*waiter, error) {
	if u.waiting.n >= waitersPerSlot*u.limit {
		return nil, q.busy(u, "as many of this user's wait as may")
	}
	if q.waiting >= waitersPerSlot*q.limits.Total {
		longest := u
		for _, other := range q.users {
			if other.waiting.n > longest.waiting.n {
				longest = other
			}
		}
		if longest.waiting.n <= u.waiting.n+1 {
			return nil, q.busy(u, "as many wait as may")
		}
		last := longest.waiting.last
		q.remove(last)
		last.done <- q.busy(longest, "as many wait as may, and most are this user's")
	}
	w := &waiter{user: u, answer: answer, done: make(chan error, 1)}
	u.waiting.push(w)
	q.waiting++
	q.noteRunnable(u)
	return w, nil
}

// leave removes a call that waits no longer from its wait list, and returns the reason
// why. If it got its slot just now, it keeps it and there is no error.
func (q *queue) leave(w *waiter, why func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	default:
	}
	q.remove(w)
	return why()
}

func (q *queue) remove(w *waiter) {
	w.user.waiting.remove(w)
	q.waiting--
}

// mayRun tells whether a user may have one more slot now.
func (q *queue) mayRun(u *user, bytes int) bool {
	return u.slots < min(u.limit, q.limits.Total-q.slots) &&
		(u.paceRound != q.pace.round || u.sentThisRound < q.pace.burst) &&
		(u.bytes == 0 || u.bytes+bytes <= min(bytesPerUser, bytesInTotal-q.bytes)) &&
		(bytes == 0 || q.hasMemory == nil || q.hasMemory(u.name))
}

func (q *queue) grant(u *user, bytes int) slot {
	q.slots++
	q.bytes += bytes
	u.slots++
	u.bytes += bytes
	if u.paceRound != q.pace.round {
		u.paceRound, u.sentThisRound = q.pace.round, 0
	}
	u.sentThisRound++
	q.pace.sent(u.sentThisRound)
	return slot{u, bytes, u.paceRound}
}

// noteRunnable notes a user whose waiting calls could run, were enough slots free.
func (q *queue) noteRunnable(u *user) {
	if !u.isRunnable && u.waiting.n > 0 && u.slots < u.limit {
		u.isRunnable = true
		q.runnable.push(u)
	}
}

// advance gives slots to waiting calls, one of each wait list after the other, until
// nobody may have one.
func (q *queue) advance() {
	for passed := 0; passed < q.runnable.n && q.slots < q.limits.Total; {
		u := q.runnable.pop()
		u.isRunnable = false
		if u.waiting.n > 0 && q.mayRun(u, u.waiting.first.answer.expected()) {
			first := u.waiting.first
			q.remove(first)
			first.slot = q.grant(u, first.answer.expected())
			first.done <- nil
			passed = 0
		} else {
			passed++
		}
		q.noteRunnable(u)
	}
}

// advanceAll is advance for whoever does not hold the lock.
func (q *queue) advanceAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance()
}

// busy says why a call of a user got no slot.
func (q *queue) busy(u *user, why string) *BusyError {
	if q.slots < q.limits.Total {
		return &BusyError{User: true, InFlight: u.slots, Why: why}
	}
	return &BusyError{InFlight: q.slots, Why: why}
}

// Load is how much is under way just now.
type Load struct {
	InFlight int // sent and not answered, those that nobody waits for included
	Waiting  int // for a slot
}

func (q *queue) load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Load{q.slots, q.waiting}
}

// loads are those of each user that has any.
func (q *queue) loads() map[string]Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := map[string]Load{}
	for name, u := range q.users {
		if u.slots > 0 || u.waiting.n > 0 {
			of[name] = Load{u.slots, u.waiting.n}
		}
	}
	return of
}
