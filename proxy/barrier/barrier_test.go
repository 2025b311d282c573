package barrier

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (s *Barriers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byKey)
}

func TestBarrierOpensOrTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Barriers
		arrived := make(chan error, 1)
		go func() { arrived <- s.Arrived(t.Context(), "a", time.Minute) }()
		synctest.Wait()
		require.ErrorIs(t, s.Open("a"), ErrNobody, "no call is waiting at the barrier yet")

		b, err := s.Claim("a")
		require.NoError(t, err)
		_, err = s.Claim("a")
		require.ErrorIs(t, err, ErrTaken)
		require.ErrorIs(t, s.Open("a"), ErrNobody, "the call has not arrived at the barrier yet")
		waited := make(chan error, 1)
		go func() { waited <- b.Wait(t.Context(), time.Second) }()
		require.NoError(t, <-arrived)
		require.NoError(t, s.Arrived(t.Context(), "a", time.Minute), "again")
		require.NoError(t, s.Open("a"))
		require.NoError(t, <-waited)
		require.NoError(t, s.Open("a"), "again")
		s.GiveUp("a") // too late to have an effect
		b.Leave()
		assert.Zero(t, s.count(), "unused barriers are not removed")
	})
}

func TestUnopenedBarriersTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Barriers
		b, err := s.Claim("late")
		require.NoError(t, err)
		began := time.Now()
		require.ErrorIs(t, b.Wait(t.Context(), time.Second), ErrLate)
		assert.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, s.Open("late"), ErrGivenUp)
		require.ErrorIs(t, s.Arrived(t.Context(), "late", time.Minute), ErrGivenUp)
		b.Leave()

		b, err = s.Claim("given up")
		require.NoError(t, err)
		s.GiveUp("given up")
		require.ErrorIs(t, b.Wait(t.Context(), time.Hour), ErrGivenUp)
		b.Leave()

		b, err = s.Claim("client gone")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.Wait(ctx, time.Hour), context.Canceled)
		b.Leave()

		b, err = s.Claim("failed before it arrived")
		require.NoError(t, err)
		arrived := make(chan error, 1)
		go func() { arrived <- s.Arrived(t.Context(), "failed before it arrived", time.Hour) }()
		synctest.Wait()
		b.Leave()
		require.ErrorIs(t, <-arrived, ErrGivenUp)

		began = time.Now()
		require.ErrorIs(t, s.Arrived(t.Context(), "nobody's", time.Minute), ErrNobody)
		assert.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, s.Open("nobody's"), ErrNobody)
		s.GiveUp("nobody's")
		assert.Zero(t, s.count())
	})
}

// The call continues if and only if Open has succeeded.
func TestBarrierOpensAtTheLastMoment(t *testing.T) {
	var s Barriers
	for range 2000 {
		b, err := s.Claim("a")
		require.NoError(t, err)
		var opened atomic.Bool
		var others sync.WaitGroup
		others.Go(func() {
			if s.Arrived(t.Context(), "a", time.Minute) == nil {
				opened.Store(s.Open("a") == nil)
			}
		})
		err = b.Wait(t.Context(), time.Microsecond)
		others.Wait()
		require.Equal(t, opened.Load(), err == nil)
		b.Leave()
	}
	assert.Zero(t, s.count())
}
