package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// If a server returns with old data, its replica is rebuilt in full, although the log covers the
// writes that the replica has missed since it was dropped.
func TestReplicaWithOldDataIsRebuiltInFull(t *testing.T) {
	for restarted, want := range map[bool]replica.Rebuild{false: replica.ByBitmap, true: replica.InFull} {
		w, m := started(t)
		old := w.disk(1).parts
		for i := range old {
			old[i] = append([]byte(nil), old[i]...)
		}
		if restarted {
			require.NoError(t, m.Stop(t.Context()))
			_, err := m.Start(t.Context())
			require.NoError(t, err)
		}
		require.NoError(t, m.Drop(t.Context(), 1))
		require.Equal(t, setB, w.witness.Logged)
		w.disk(1).parts = old
		require.NoError(t, m.Add(t.Context(), 1))
		s, _ := w.superblock(1)
		assert.Equal(t, want, s.Rebuild)
	}
}

// If one server returns with old data after a clean stop, the mirror starts only with the other
// replica, even if that is the second replica.
func TestStartDoesNotUseOldData(t *testing.T) {
	w, m := started(t)
	old := w.disk(0).parts
	for i := range old {
		old[i] = append([]byte(nil), old[i]...)
	}
	require.NoError(t, m.Stop(t.Context()))
	_, err := m.Start(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Stop(t.Context()))
	require.True(t, w.witness.Clean)
	w.disk(0).parts = old
	d, err := m.Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, replica.Decision{Action: replica.Start, InSync: setB, InFull: setA}, d)
}
