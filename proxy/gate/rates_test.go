package gate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

func TestCallRatesAreLimited(t *testing.T) {
	var r callRates
	ctx := t.Context()
	require.NoError(t, r.wait(ctx, "any"))
	r.set(2, map[string]int{"fast": 1_000_000})
	for range 10_000 {
		require.NoError(t, r.wait(ctx, "fast"))
	}
	began := time.Now()
	for range 4 { // two calls immediately, and then one every 500 ms
		require.NoError(t, r.wait(ctx, "slow"))
	}
	assert.GreaterOrEqual(t, time.Since(began), 990*time.Millisecond)

	// A call that would have to wait longer than a second is refused immediately.
	for range 20 {
		r.limiterOf("late").ReserveN(time.Now(), 2)
	}
	var late *rateError
	require.ErrorAs(t, r.wait(ctx, "late"), &late)
	assert.Equal(t, jsonrpc.CodeTooMany, AnswerTo(late).Err.Code)
	assert.Equal(t, time.Second, AnswerTo(late).RetryAfter)

	// Calls of disconnected clients do not delay other clients.
	r.limiterOf("gone").ReserveN(time.Now(), 2)
	r.limiterOf("gone").ReserveN(time.Now(), 1)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, r.wait(ended, "gone"), ErrGone)

	r.set(0, nil)
	began = time.Now()
	for range 100 {
		require.NoError(t, r.wait(ctx, "slow"))
	}
	assert.Less(t, time.Since(began), 20*time.Second, "no limit")
}

// A call counts for one second, with a resolution of a tenth of a second. Refused calls do not
// count. A reload gives no user additional calls; only a limit that is removed no longer applies.
func TestReloadKeepsTheCallCountsOfUsers(t *testing.T) {
	var r callRates
	r.set(1, nil)
	limiter := r.limiterOf("any")
	r.set(1, nil)
	assert.Same(t, limiter, r.limiterOf("any"))
	r.set(0, nil)
	assert.Nil(t, r.limiterOf("any"))
}

func TestCallsInTheLastSecondAreCounted(t *testing.T) {
	var r callRates
	assert.Nil(t, r.limiterOf("any"), "without a limit, nothing is counted")
	r.set(3, nil)
	u := r.limiterOf("any")
	began := time.UnixMilli(1_000_000_050)
	assert.Zero(t, u.count(began))
	u.note(began)
	u.note(began)
	u.note(began.Add(500 * time.Millisecond))
	assert.Equal(t, 3, u.count(began.Add(900*time.Millisecond)))
	assert.Equal(t, 1, u.count(began.Add(time.Second)))
	u.note(began) // the clock has been set back
	assert.Equal(t, 2, u.count(began.Add(time.Second)))
	assert.Zero(t, u.count(began.Add(time.Hour)))

	u.ReserveN(time.Now(), 3)
	for range 2 {
		u.ReserveN(time.Now(), 3)
	}
	require.Error(t, r.wait(t.Context(), "any"))
	assert.Zero(t, u.count(time.Now()))
}
