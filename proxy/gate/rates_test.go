package gate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

func TestCallRates(t *testing.T) {
	var r callRates
	ctx := t.Context()
	require.NoError(t, r.wait(ctx, "any"))
	r.set(2, map[string]int{"fast": 1_000_000})
	for range 10_000 {
		require.NoError(t, r.wait(ctx, "fast"))
	}
	began := time.Now()
	for range 4 { // two at once, then one every 500 ms
		require.NoError(t, r.wait(ctx, "slow"))
	}
	assert.GreaterOrEqual(t, time.Since(began), 990*time.Millisecond)

	// A call that would have to wait longer than a second is refused at once.
	for range 20 {
		r.limiterOf("late").ReserveN(time.Now(), 2)
	}
	var late *rateError
	require.ErrorAs(t, r.wait(ctx, "late"), &late)
	assert.Equal(t, jsonrpc.CodeTooMany, AnswerTo(late).Err.Code)
	assert.Equal(t, time.Second, AnswerTo(late).RetryAfter)

	// A client that has disconnected does not delay others.
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
