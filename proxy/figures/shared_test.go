package figures

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

// Any number of callers share one reading until it is too old.
func TestCallersShareRecentFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made := 0
		s := NewShared(func(context.Context) *Figures {
			made++
			time.Sleep(time.Second)
			return &Figures{Restarts: made}
		}, 10*time.Second, time.Minute)
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				f, err := s.Latest(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, 1, f.Restarts)
			})
		}
		callers.Wait()
		time.Sleep(9*time.Second - 1) // the age is measured from the beginning of the read
		f, err := s.Latest(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, f.Restarts)
		time.Sleep(time.Nanosecond)
		f, err = s.Latest(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, f.Restarts)
		assert.Equal(t, 2, made)
	})
}

// A read has its own time limit, so it continues when its caller gives up.
func TestReadContinuesWhenACallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		s := NewShared(func(ctx context.Context) *Figures {
			<-ctx.Done()
			ended.Add(1)
			return nil // simulates a panic
		}, 10*time.Second, time.Minute)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_, err := s.Latest(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, ended.Load())
		f, err := s.Latest(t.Context())
		require.NoError(t, err)
		assert.False(t, f.Up)
		assert.EqualValues(t, 1, ended.Load())
	})
}
