package proxy

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A user's calls beyond the rate wait, and are refused if they would wait too long. Other users are
// not affected.
func TestCallsPerSecond(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.UsersCallsPerSecond = map[string]int{"viewer": 3} })
	batch := "[" + strings.Repeat(version+",", 40) + version + "]"
	flood := b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(batch), batchHeader, concurrentBatch)
	require.Equal(t, http.StatusOK, flood.StatusCode)
	refused := strings.Count(flood.body, "this user may make 3 calls per second. Nothing was executed; send fewer calls, or retry.")
	assert.Greater(t, refused, 10)
	assert.Less(t, refused, 41-3+1)
	assert.Equal(t, http.StatusOK, b.post(batch).StatusCode)
	assert.NotContains(t, b.post(batch).body, "per second")

	with := *b.config
	with.Limits.UsersCallsPerSecond = nil
	require.NoError(t, b.proxy.Reload(&with))
	assert.NotContains(t, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(batch)).body, "per second")
}

func TestCallRates(t *testing.T) {
	var r callRates
	ctx := t.Context()
	require.NoError(t, r.wait(ctx, "any"))
	r.set(2, map[string]int{"fast": 1_000_000})
	for range 10_000 {
		require.NoError(t, r.wait(ctx, "fast"))
	}
	began := time.Now()
	for range 4 { // two at once, and each further one after 500 ms
		require.NoError(t, r.wait(ctx, "slow"))
	}
	assert.GreaterOrEqual(t, time.Since(began), 990*time.Millisecond)

	// A call that would wait for longer than a second is refused at once.
	for range 20 {
		r.limiterOf("late").ReserveN(time.Now(), 2)
	}
	var late *rateError
	require.ErrorAs(t, r.wait(ctx, "late"), &late)
	assert.Equal(t, jsonrpc.CodeTooMany, answerTo(late).err.Code)
	assert.Equal(t, time.Second, answerTo(late).retryAfter)

	// Nobody waits for a client that has gone.
	r.limiterOf("gone").ReserveN(time.Now(), 2)
	r.limiterOf("gone").ReserveN(time.Now(), 1)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, r.wait(ended, "gone"), errGone)

	r.set(0, nil)
	began = time.Now()
	for range 100 {
		require.NoError(t, r.wait(ctx, "slow"))
	}
	assert.Less(t, time.Since(began), 20*time.Second, "no limit")
}
