package mirror

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// rebuilt returns a world in which replica B is completely rebuilt, but the write that lists it in
// the witness is delayed in the API server.
func rebuilt(t *testing.T) (*world, *Mirror) {
	t.Helper()
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	w.synced, w.delayed = testSize/RegionBytes, true
	_, err := m.Complete(t.Context())
	require.ErrorContains(t, err, "does not respond")
	require.Equal(t, setA, w.witness.InSync)
	require.NotNil(t, w.late)
	w.after()
	return w, m
}

// A write that lists a replica is delayed in the API server. Once the mirror has continued without
// that replica, the write must fail, even if nothing else in the witness has changed.
func TestDelayedWriteDoesNotRestoreADroppedReplica(t *testing.T) {
	w, m := rebuilt(t)
	w.synced = 0 // the write can be executed from now on
	before := w.late
	w.late = nil
	m.Release = func(_ context.Context, _ string) error { w.late = before; return nil }
	require.NoError(t, m.Drop(t.Context(), 1))
	assert.Equal(t, setA, w.witness.InSync)
	assert.NotNil(t, w.late, "the delayed write was executed")
}

// After a restart of the plugin, the kernel may send writes of a marked region to only one replica.
// A delayed write of the previous process must therefore not list the other replica.
func TestDelayedWriteOfAnEarlierProcessIsOvertaken(t *testing.T) {
	w, _ := rebuilt(t)
	m := w.plugin()
	before := w.late
	w.late = nil
	_, err := m.Start(t.Context())
	require.NoError(t, err)
	w.late, w.synced = before, 0
	require.NoError(t, m.Retry(t.Context()))
	assert.Equal(t, setA, w.witness.InSync)
	assert.NotNil(t, w.late, "the delayed write was executed")
}

// If the witness lists both replicas, the writes are repeated on both replicas, even if the log is
// still on a replica.
func TestRetryAfterACompleteRebuildUsesBothReplicas(t *testing.T) {
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	w.witness.InSync, w.witness.Logged = both, 0
	require.NoError(t, m.Retry(t.Context()))
	assert.Equal(t, pairTable, w.table())
}

// If both replicas have failed, the kernel fails writes that may be on one of the replicas. The
// second replica is then rebuilt in full.
func TestWritesFailIfBothReplicasFail(t *testing.T) {
	w, m := started(t)
	w.mapped[mirrorDevice].health = "DD"
	require.NoError(t, m.Retry(t.Context()))
	assert.Contains(t, w.table(), "keep_log")
	assert.Equal(t, setA, w.witness.InSync)
	assert.Zero(t, w.witness.Logged)
	require.NoError(t, m.Add(t.Context(), 1))
	s, _ := w.superblock(1)
	assert.Equal(t, replica.InFull, s.Rebuild)

	w, _ = started(t) // simulate a crash between the change of the witness and the new table
	w.mapped[mirrorDevice].health = "DD"
	w.witness.InSync = setB
	_, err := w.plugin().Start(t.Context())
	require.NoError(t, err)
	assert.Zero(t, w.witness.Logged)

	w, m = started(t)
	w.mapped[mirrorDevice].health = "DD"
	require.NoError(t, m.Stop(t.Context()))
	assert.False(t, w.witness.Clean)
	w, m = started(t)
	w.mapped[mirrorDevice].health = "AD"
	require.NoError(t, m.Drop(t.Context(), 1))
	assert.Equal(t, setB, w.witness.Logged, "the writes that failed on one replica are repeated and marked")
}
