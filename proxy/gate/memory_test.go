package gate

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUserMemoryIsLimited(t *testing.T) {
	var h memoryBudget
	n, err := h.Reserve("a", 10*MemoryPerUser)
	require.NoError(t, err, "a user without pending responses is not refused")
	_, err = h.Reserve("a", 1)
	require.ErrorIs(t, err, ErrMemory)
	_, err = h.Reserve("b", 1)
	require.NoError(t, err, "other users are not affected")
	h.Release("a", n)
	n, err = h.Reserve("a", MemoryPerUser-1)
	require.NoError(t, err)
	n += h.Add("a", 1)
	_, err = h.Reserve("a", 1)
	require.ErrorIs(t, err, ErrMemory)
	assert.False(t, h.Exhausted("a"))
	for _, user := range []string{"c", "d", "e"} {
		_, err := h.Reserve(user, MemoryPerUser)
		require.NoError(t, err)
	}
	h.Add("c", 2*memoryMargin)
	assert.True(t, h.Exhausted("c"), "more than the limit of one user")
	assert.True(t, h.Exhausted("d"), "more than the limit of all users")
	assert.False(t, h.Exhausted("b"), "a user with little memory is not affected")
	h.Release("c", 2*memoryMargin)
	assert.False(t, h.Exhausted("d"))
	_, err = h.Reserve("b", 1)
	require.ErrorIs(t, err, ErrMemory, "no memory is left")
	h.Release("a", n)
	_, err = h.Reserve("b", 1)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"b": 2, "c": MemoryPerUser, "d": MemoryPerUser, "e": MemoryPerUser}, h.ofUser)
	assert.Equal(t, 3*MemoryPerUser+2, h.total)
	assert.Equal(t, http.StatusTooManyRequests, AnswerTo(errors.Join(ErrMemory)).Status)
}
