package target

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"
)

// Limits contains the maximum numbers of calls that may run concurrently.
type Limits struct {
	Total   int            // all users together
	PerUser int            // each user
	Of      map[string]int // users with their own limit, by name
}

func (l Limits) of(who string) int {
	n, ok := l.Of[who]
	if !ok {
		n = l.PerUser
	}
	return min(n, l.Total)
}

// waitersPerSlot is the maximum number of waiting calls per slot, which limits the memory that they
// occupy.
const waitersPerSlot = 4

// A queue grants slots, each for one running call. A user's slots may exceed neither the user's
// limit nor the number of free slots. Therefore, if n users occupy all the slots that they can get,
// one slot in n+1 remains free for the next user, even if SPDK never responds to their calls.
//
// A call that cannot get a slot waits in its user's wait list. The lists are served round-robin,
// one call each, so that a long list does not delay other users. After each change, the queue
// grants slots until no waiting call may have one. Therefore, a new call by a user without waiting
// calls does not overtake any call that could run.
type queue struct {
	mu        sync.Mutex
	limits    Limits
	users     map[string]*user
	sweepAt   int         // number of known users at which idle users are removed
	slots     int         // granted slots
	bytes     int         // total expected length of the responses to running calls
	waiting   int         // waiting calls
	runnable  fifo[*user] // users who have waiting calls and are below their limit
	pace      pace
	hasMemory func(user string) bool // see Config.HasMemory
}

// A user has, or recently had, running or waiting calls.
type user struct {
	name       string
	limit      int
	slots      int
	bytes      int
	waiting    waitList
	isRunnable bool // the user is in queue.runnable, possibly with an empty wait list

	paceRound     uint64
	sentThisRound int // running calls that were sent in that round
}

// A slot is the right to run one call.
type slot struct {
	*user
	bytes     int
	paceRound uint64
}

// These constants limit the total expected length, in bytes, of the responses to running calls,
// because long responses use memory in SPDK and in the proxy. Each user may always run one call.
const (
	bytesPerUser = 32 << 20
	bytesInTotal = 256 << 20
)

// maxIdleUsers is the maximum number of users without calls that are kept.
const maxIdleUsers = 1024

func newQueue(l Limits) *queue {
	return &queue{limits: l, users: map[string]*user{}, sweepAt: maxIdleUsers, pace: pace{burst: firstBurst}}
}

// acquire waits up to timeout for a slot for a call. answer is the expected size of the response.
// The caller must return the slot with release. The error is a *BusyError or, if ctx ended first,
// wraps ErrAbandoned.
func (q *queue) acquire(ctx context.Context, who string, answer *size, timeout time.Duration) (slot, error) {
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

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err = <-w.done:
	case <-timer.C:
		err = q.leave(w, func() error { return q.busy(u, fmt.Sprintf("none of them ended within %s", timeout)) })
	case <-ctx.Done():
		err = q.leave(w, func() error { return fmt.Errorf("%w: %w", ErrAbandoned, ctx.Err()) })
	}
	if err != nil {
		return slot{}, err
	}
	return w.slot, nil
}

// release returns a slot.
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

// setLimits changes the limits of users, but not the total number of slots. It does not affect
// running and waiting calls.
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

// user returns a user, and adds the user if necessary.
func (q *queue) user(who string) *user {
	if u := q.users[who]; u != nil {
		return u
	}
	if len(q.users) >= q.sweepAt {
		maps.DeleteFunc(q.users, func(_ string, u *user) bool { return u.slots == 0 && u.waiting.n == 0 && !u.isRunnable })
		q.sweepAt = max(maxIdleUsers, 2*len(q.users)) // keeps the cost of sweeping per new user low
	}
	u := &user{name: who, limit: q.limits.of(who)}
	q.users[who] = u
	return u
}

// enter appends a call to its user's wait list. If too many calls are waiting in total, enter
// instead refuses the last call in the longest list, so that a flood of calls does not displace
// other users.
func (q *queue) enter(u *user, answer *size) (*waiter, error) {
	if u.waiting.n >= waitersPerSlot*u.limit {
		return nil, q.busy(u, "this user already has the maximum number of waiting calls")
	}
	if q.waiting >= waitersPerSlot*q.limits.Total {
		longest := u
		for _, other := range q.users {
			if other.waiting.n > longest.waiting.n {
				longest = other
			}
		}
		if longest.waiting.n <= u.waiting.n+1 {
			return nil, q.busy(u, "the maximum number of calls is waiting")
		}
		last := longest.waiting.last
		q.remove(last)
		last.done <- q.busy(longest, "the maximum number of calls is waiting, most of them this user's")
	}
	w := &waiter{user: u, answer: answer, done: make(chan error, 1)}
	u.waiting.push(w)
	q.waiting++
	q.noteRunnable(u)
	return w, nil
}

// leave removes a call from its wait list, and returns the error that why returns. If the call has
// just got a slot, it keeps the slot, and leave returns nil.
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

// mayRun reports whether a user may have another slot now, for a response of this length.
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
	q.pace.noteSent(u.sentThisRound)
	return slot{u, bytes, u.paceRound}
}

// noteRunnable adds a user to runnable if the user has waiting calls and is below the limit.
func (q *queue) noteRunnable(u *user) {
	if !u.isRunnable && u.waiting.n > 0 && u.slots < u.limit {
		u.isRunnable = true
		q.runnable.push(u)
	}
}

// advance grants slots to waiting calls, one per wait list in turn, until no waiting call may have
// a slot.
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

// advanceAll is like advance, but for callers that do not hold q.mu.
func (q *queue) advanceAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance()
}

// busy returns the error for a call that did not get a slot.
func (q *queue) busy(u *user, why string) *BusyError {
	if q.slots < q.limits.Total {
		return &BusyError{User: true, InFlight: u.slots, Why: why}
	}
	return &BusyError{InFlight: q.slots, Why: why}
}

// Load counts the calls at one point in time.
type Load struct {
	// calls without a response, including those whose deadline has passed
	InFlight int
	Waiting  int // calls waiting for a slot
}

func (q *queue) load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Load{q.slots, q.waiting}
}

// A UserLoad is a user's Load, with the user's limits.
type UserLoad struct {
	Load
	MaxInFlight, MaxWaiting int
}

func (q *queue) loadOf(who string) UserLoad {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := q.limits.of(who)
	l := UserLoad{MaxInFlight: limit, MaxWaiting: waitersPerSlot * limit}
	if u := q.users[who]; u != nil {
		l.Load = Load{u.slots, u.waiting.n}
	}
	return l
}

// loads returns the load of each user who has running or waiting calls.
func (q *queue) loads() map[string]Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	loads := map[string]Load{}
	for name, u := range q.users {
		if u.slots > 0 || u.waiting.n > 0 {
			loads[name] = Load{u.slots, u.waiting.n}
		}
	}
	return loads
}
