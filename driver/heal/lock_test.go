package heal

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNodeLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := NewNodeLock(path), NewNodeLock(path)
	require.NoError(t, first.Acquire())
	require.NoError(t, first.Acquire(), "it is held already")
	err := second.Acquire()
	require.ErrorIs(t, err, syscall.EWOULDBLOCK)
	assert.ErrorContains(t, err, path)
	require.NoError(t, first.file.Close()) // as if the process had ended
	require.NoError(t, second.Acquire())
}
