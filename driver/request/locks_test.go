package request

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConflictingLocksAreRefused(t *testing.T) {
	l := NewLocks()
	one, two := l.Claim(), l.Claim()
	require.NoError(t, one.Share("s"))
	require.NoError(t, two.Share("s"))
	require.ErrorIs(t, l.Claim().Take("s"), ErrInFlight)
	one.Release()
	require.ErrorIs(t, l.Claim().Take("s"), ErrInFlight)
	two.Release()
	require.NoError(t, one.Take("s"))
	require.ErrorIs(t, two.Share("s"), ErrInFlight)
	require.NoError(t, two.Take("other"))
	assert.Equal(t, []string{"other", "s"}, l.Held())
	one.Release()
	two.Release()
	assert.Empty(t, l.Held())
}
