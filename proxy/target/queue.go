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

// waitersPerTurn bounds the memory that waiting calls take.
const waitersPerTurn = 4

// A queue gives out the turns to call. Nobody may have more of them than their
// limit, nor than are free: n users who take what they can get leave one part in
// n+1 to whoever comes next, even if SPDK never answers any of their calls.
//
// Whoever may have none now waits in a line of their own user, and the lines move
// one call each in turn: the length of one delays no other. After each change
// the lines are moved as far as they can be: so a call whose user may have a
// turn, and has no line, passes nobody.
type queue struct {
	mu      sync.Mutex
	limits  Limits
	users   map[string]*user
	sweepAt int // users known, when those at rest are forgotten
	taken   int
	bytes   int // expected to be answered to them
	waiting int
	moving  fifo[*user] // who has a line and is below their limit
	pace    pace
	room    func(user string) bool // see Config.Room
}

// A user has calls under way, or waiting, or lately had.
type user struct {
	name   string
	limit  int
	taken  int
	bytes  int
	line   line
	moving bool // is in queue.moving; its line may have become empty there

	round uint64
	young int // calls under way that were sent in that round
}

// A turn is the right to have one call under way.
type turn struct {
	*user
	bytes int
	round uint64
}

// Long answers take memory, of SPDK and of the proxy. So calls that expect them
// are under way only up to these sums, but one of each user always is.
const (
	bytesPerUser = 32 << 20
	bytesInAll   = 256 << 20
)

// restingUsers are remembered, for the next call's sake.
const restingUsers = 1024

func newQueue(l Limits) *queue {
	return &queue{limits: l, users: map[string]*user{}, sweepAt: restingUsers, pace: pace{burst: firstBurst}}
}

// take waits for a turn, which give takes back, for a call with such an answer. The error is a *BusyError, or
// wraps ErrAbandoned when ctx ended first.
func (q *queue) take(ctx context.Context, who string, answer *size, bound time.Duration) (turn, error) {
	q.mu.Lock()
	u := q.user(who)
	if u.line.n == 0 && q.may(u, answer.expected()) {
		t := q.grant(u, answer.expected())
		q.mu.Unlock()
		return t, nil
	}
	w, err := q.enter(u, answer)
	q.mu.Unlock()
	if err != nil {
		return turn{}, err
	}

	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err = <-w.told:
	case <-timer.C:
		err = q.leave(w, func() error { return q.busy(u, fmt.Sprintf("none of them ended within %s", bound)) })
	case <-ctx.Done():
		err = q.leave(w, func() error { return fmt.Errorf("%w: %w", ErrAbandoned, ctx.Err()) })
	}
	if err != nil {
		return turn{}, err
	}
	return w.turn, nil
}

// give takes a turn back.
func (q *queue) give(t turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	q.bytes -= t.bytes
	t.user.taken--
	t.user.bytes -= t.bytes
	if t.round == t.user.round {
		t.user.young--
	}
	q.mayMove(t.user)
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
		q.mayMove(u)
	}
	q.advance()
}

// user finds a user, or makes one.
func (q *queue) user(who string) *user {
	if u := q.users[who]; u != nil {
		return u
	}
	if len(q.users) >= q.sweepAt {
		maps.DeleteFunc(q.users, func(_ string, u *user) bool { return u.taken == 0 && u.line.n == 0 && !u.moving })
		q.sweepAt = max(restingUsers, 2*len(q.users)) // so that sweeping costs each newcomer little
	}
	u := &user{name: who, limit: q.limits.of(who)}
	q.users[who] = u
	return u
}

// enter lets a call into its user's line. When all lines together are as long as
// they may be, the longest one loses its last: who floods makes room for others.
func (q *queue) enter(u *user, answer *size) (*waiter, error) {
	if u.line.n >= waitersPerTurn*u.limit {
		return nil, q.busy(u, "as many of this user's wait as may")
	}
	if q.waiting >= waitersPerTurn*q.limits.Total {
		longest := u
		for _, other := range q.users {
			if other.line.n > longest.line.n {
				longest = other
			}
		}
		if longest.line.n <= u.line.n+1 {
			return nil, q.busy(u, "as many wait as may")
		}
		last := longest.line.last
		q.remove(last)
		last.told <- q.busy(longest, "as many wait as may, and most are this user's")
	}
	w := &waiter{user: u, answer: answer, told: make(chan error, 1)}
	u.line.push(w)
	q.waiting++
	q.mayMove(u)
	return w, nil
}

// leave takes a call that waits no longer out of its line, for the reason why;
// if it got its turn just now, it has it all the same.
func (q *queue) leave(w *waiter, why func() error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-w.told:
		return err
	default:
	}
	q.remove(w)
	return why()
}

func (q *queue) remove(w *waiter) {
	w.user.line.remove(w)
	q.waiting--
}

// may tells whether a user may have one more turn just now.
func (q *queue) may(u *user, bytes int) bool {
	return u.taken < min(u.limit, q.limits.Total-q.taken) &&
		(u.round != q.pace.round || u.young < q.pace.burst) &&
		(u.bytes == 0 || u.bytes+bytes <= min(bytesPerUser, bytesInAll-q.bytes)) &&
		(bytes == 0 || q.room == nil || q.room(u.name))
}

func (q *queue) grant(u *user, bytes int) turn {
	q.taken++
	q.bytes += bytes
	u.taken++
	u.bytes += bytes
	if u.round != q.pace.round {
		u.round, u.young = q.pace.round, 0
	}
	u.young++
	q.pace.sent(u.young)
	return turn{u, bytes, u.round}
}

// mayMove notes a user whose line could move, were enough turns free.
func (q *queue) mayMove(u *user) {
	if !u.moving && u.line.n > 0 && u.taken < u.limit {
		u.moving = true
		q.moving.push(u)
	}
}

// advance gives turns to whoever waits, one of each line in turn, until nobody
// may have one.
func (q *queue) advance() {
	for passed := 0; passed < q.moving.n && q.taken < q.limits.Total; {
		u := q.moving.pop()
		u.moving = false
		if u.line.n > 0 && q.may(u, u.line.first.answer.expected()) {
			first := u.line.first
			q.remove(first)
			first.turn = q.grant(u, first.answer.expected())
			first.told <- nil
			passed = 0
		} else {
			passed++
		}
		q.mayMove(u)
	}
}

// advanceAll is advance for whoever does not hold the lock.
func (q *queue) advanceAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance()
}

// busy says why a call of a user got no turn.
func (q *queue) busy(u *user, why string) *BusyError {
	if q.taken < q.limits.Total {
		return &BusyError{User: true, InFlight: u.taken, Why: why}
	}
	return &BusyError{InFlight: q.taken, Why: why}
}

// Load is how much is under way just now.
type Load struct {
	InFlight int // sent and not answered, those that nobody waits for included
	Waiting  int // for their turn
}

func (q *queue) load() Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Load{q.taken, q.waiting}
}

// loads are those of each user that has any.
func (q *queue) loads() map[string]Load {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := map[string]Load{}
	for name, u := range q.users {
		if u.taken > 0 || u.line.n > 0 {
			of[name] = Load{u.taken, u.line.n}
		}
	}
	return of
}
