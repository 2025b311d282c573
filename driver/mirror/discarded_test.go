package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// A replica that an administrator has discarded is rebuilt in full, even if the log covers it.
func TestDiscardedReplicaIsRebuiltInFull(t *testing.T) {
	w, m := started(t)
	require.NoError(t, m.Drop(t.Context(), 1))
	require.Equal(t, setB, w.witness.Logged)
	w.witness.Discarded = setB
	require.NoError(t, m.Add(t.Context(), 1))
	s, _ := w.superblock(1)
	assert.Equal(t, replica.InFull, s.Rebuild)
}
