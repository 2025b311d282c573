package target

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sound checks the invariants of a queue.
func (q *queue) sound(t *testing.T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken, waiting := 0, 0
	for _, u := range q.users {
		taken += u.slots
		waiting += u.waiting.n
		counted := 0
		for w := u.waiting.first; w != nil; w = w.next {
			counted++
		}
		assert.Equal(t, u.waiting.n, counted)
		if u.waiting.n > 0 {
			assert.False(t, q.mayRun(u, u.waiting.first.answer.expected()), "%s has a waiting call that could run", u.name)
		}
		assert.True(t, u.isRunnable || u.waiting.n == 0 || u.slots >= u.limit, "%s is forgotten", u.name)
	}
	assert.Equal(t, q.slots, taken)
	assert.Equal(t, q.waiting, waiting)
	assert.LessOrEqual(t, q.slots, q.limits.Total)
}

// mustTake acquires a slot, which must be available.
func mustTake(t *testing.T, q *queue, who string) slot {
	t.Helper()
	u, err := q.acquire(t.Context(), who, new(size), 0)
	require.NoError(t, err)
	return u
}

// awaitTurn adds a waiting call. When a call of the user gets a slot, awaitTurn sends the slot to
// got.
func awaitTurn(t *testing.T, q *queue, who string, got chan<- slot) {
	before := q.load().Waiting
	go func() {
		u, err := q.acquire(context.Background(), who, new(size), long)
		assert.NoError(t, err)
		got <- u
	}()
	synctest.Wait()
	require.Equal(t, before+1, q.load().Waiting)
}

func TestUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 8, PerUser: 8})
		for i := range 7 {
			mustTake(t, q, fmt.Sprint("other", i))
		}
		held := mustTake(t, q, "flood")
		got := make(chan slot)
		for range 20 {
			awaitTurn(t, q, "flood", got)
		}
		for range 2 {
			awaitTurn(t, q, "a", got)
		}
		awaitTurn(t, q, "b", got)
		var order []string
		for range 23 {
			q.release(held)
			held = <-got
			order = append(order, held.name)
			q.sound(t)
		}
		assert.Equal(t, []string{"flood", "a", "b", "flood", "a", "flood"}, order[:6])
		q.release(held)
		assert.Equal(t, Load{InFlight: 7}, q.load())
	})
}

func TestNoUserGetsAllSlots(t *testing.T) {
	q := newQueue(Limits{Total: 12, PerUser: 100, Of: map[string]int{"small": 2}})
	take := func(who string) (n int) {
		for {
			if _, err := q.acquire(t.Context(), who, new(size), 0); err != nil {
				var busy *BusyError
				require.ErrorAs(t, err, &busy)
				assert.True(t, busy.User)
				assert.Equal(t, n, busy.InFlight)
				assert.Contains(t, err.Error(), "of this user")
				return n
			}
			n++
		}
	}
	assert.Equal(t, 2, take("small"), "its own limit")
	assert.Equal(t, 5, take("a"), "half of the slots that were left")
	assert.Equal(t, 3, take("b"), "half again")
	assert.Equal(t, 1, take("c"))
	assert.Equal(t, map[string]Load{"small": {2, 0}, "a": {5, 0}, "b": {3, 0}, "c": {1, 0}}, q.loads())
	mustTake(t, q, "d")
	_, err := q.acquire(t.Context(), "e", new(size), 0)
	var busy *BusyError
	require.ErrorAs(t, err, &busy)
	assert.Equal(t, BusyError{InFlight: 12, Why: busy.Why}, *busy, "no user is named")
	q.sound(t)
}

func TestNumberOfWaitersIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 4, PerUser: 3, Of: map[string]int{"small": 1}})
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		var busy atomic.Int32
		enter := func(who string, n int) {
			for range n {
				waiters.Go(func() {
					switch _, err := q.acquire(ctx, who, new(size), time.Hour); err.(type) {
					case *BusyError:
						busy.Add(1)
					default:
						assert.ErrorIs(t, err, ErrAbandoned)
					}
				})
			}
			synctest.Wait()
		}
		for range 2 {
			mustTake(t, q, "small-"+fmt.Sprint(q.slots))
		}
		mustTake(t, q, "small")
		mustTake(t, q, "other")
		enter("small", 6)
		assert.EqualValues(t, 2, busy.Swap(0), "4 for each slot that the user may have")
		enter("flood", 13)
		assert.EqualValues(t, 1, busy.Swap(0), "12 wait")
		assert.Equal(t, 16, q.load().Waiting, "the maximum number of waiting calls in total")
		enter("late", 1)
		assert.EqualValues(t, 1, busy.Swap(0), "a waiting call had to be refused")
		assert.Equal(t, map[string]int{"small": 4, "flood": 11, "late": 1}, waitingOf(q), "whoever floods")
		enter("late", 20)
		assert.Equal(t, map[string]int{"small": 4, "flood": 6, "late": 6}, waitingOf(q), "the longest wait list loses the next call")
		q.sound(t)
		cancel()
		waiters.Wait()
		assert.Zero(t, q.load().Waiting)
	})
}

func waitingOf(q *queue) map[string]int {
	of := map[string]int{}
	for name, l := range q.loads() {
		if l.Waiting > 0 {
			of[name] = l.Waiting
		}
	}
	return of
}

// A user with too little memory left for another long response has to wait. The user's short calls
// and other users' calls continue.
func TestLongResponsesWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		full.Store(true)
		q := newQueue(Limits{Total: 8, PerUser: 4})
		q.hasMemory = func(user string) bool { return user != "full" || !full.Load() }
		long, got := new(size), make(chan slot, 1)
		long.note(longReply)
		go func() {
			u, err := q.acquire(t.Context(), "full", long, time.Minute)
			assert.NoError(t, err)
			got <- u
		}()
		synctest.Wait()
		other, err := q.acquire(t.Context(), "other", long, 0)
		require.NoError(t, err)
		q.release(other)
		q.advanceAll()
		synctest.Wait()
		require.Empty(t, got, "it still waits")
		q.sound(t)
		full.Store(false)
		q.advanceAll()
		q.release(<-got)
		full.Store(true)
		q.release(mustTake(t, q, "full"))
		_, err = q.acquire(t.Context(), "full", long, time.Second)
		var busy *BusyError
		require.ErrorAs(t, err, &busy)
		assert.True(t, busy.User)
	})
}

func TestWaitingTimeIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 1, PerUser: 1})
		held := mustTake(t, q, "a")
		started := time.Now()
		_, err := q.acquire(t.Context(), "b", new(size), 10*time.Second)
		require.ErrorAs(t, err, new(*BusyError))
		assert.Equal(t, 10*time.Second, time.Since(started))
		q.release(held)
		q.release(mustTake(t, q, "b"))
		assert.Equal(t, Load{}, q.load())
	})
}

// Changed limits immediately apply to waiting calls and new calls.
func TestChangedLimitsApplyImmediately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(Limits{Total: 100, PerUser: 1})
		held := mustTake(t, q, "a")
		got := make(chan slot)
		for range 3 {
			awaitTurn(t, q, "a", got)
		}
		q.setLimits(Limits{PerUser: 1, Of: map[string]int{"a": 3}})
		<-got
		<-got
		q.sound(t)
		assert.Equal(t, Load{3, 1}, q.load())
		q.setLimits(Limits{PerUser: 1})
		q.release(held)
		q.release(held)
		q.sound(t)
		assert.Equal(t, Load{1, 1}, q.load(), "the user may now have only one slot")
		q.release(held)
		<-got
		q.sound(t)
	})
}

// Only idle users are removed from the queue.
func TestIdleUsersAreRemoved(t *testing.T) {
	q := newQueue(Limits{Total: 100, PerUser: 1})
	held := mustTake(t, q, "held")
	for i := range 10 * maxIdleUsers {
		q.release(mustTake(t, q, fmt.Sprint(i)))
	}
	assert.LessOrEqual(t, len(q.users), 2*maxIdleUsers)
	assert.Same(t, held.user, q.users["held"])
}
