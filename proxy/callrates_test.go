package proxy

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// Calls beyond a user's rate limit are delayed, or refused if the delay would be too long. Other
// users are not affected.
func TestCallRateIsLimitedPerUser(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.UsersCallsPerSecond = map[string]int{"viewer": 3} })
	batch := "[" + strings.Repeat(version+",", 40) + version + "]"
	flood := b.postTogether("viewer", viewerPassword, slices.Repeat([]string{version}, 41))
	refused := 0
	for _, g := range flood {
		if g.StatusCode == http.StatusTooManyRequests {
			refused++
			assert.Contains(t, g.body, "this user may make 3 calls per second. Nothing was executed; send fewer calls, or retry.")
		}
	}
	assert.Greater(t, refused, 10)
	assert.Less(t, refused, 41-3+1)
	assert.Equal(t, http.StatusOK, b.post(batch).StatusCode)
	assert.NotContains(t, b.post(batch).body, "per second")

	with := *b.config
	with.Limits.UsersCallsPerSecond = nil
	require.NoError(t, b.proxy.Reload(&with))
	assert.NotContains(t, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(batch)).body, "per second")
}
