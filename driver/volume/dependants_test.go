package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The error for a refused deletion of a snapshot lists objects that a Kubernetes user can delete,
// not the driver's internal snapshots.
func TestRefusedDeletionNamesPersistentVolumes(t *testing.T) {
	b, v, s := newDetachingService(t)
	b.DetachClones = false
	restored := b.restore(t, "pvc-restored", s)
	cloned, err := b.Clone(t.Context(), Origin{UUID: v.UUID}, Spec{Name: "pvc-cloned", MinBytes: v.SizeBytes, Class: b.cloneClass(t)})
	require.NoError(t, err)

	err = b.DeleteSnapshot(t.Context(), s.UUID, nil)
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "has 2 clones, and SPDK deletes only snapshots with at most one: all of [PersistentVolume pvc-1, PersistentVolume pvc-cloned], which were cloned from each other, PersistentVolume pvc-restored. To delete the snapshot, delete the claims")
	assert.ErrorContains(t, err, `"deleteWithClones": "detach"`)
	assert.NotContains(t, err.Error(), basePrefix)
	assert.Equal(t, err, b.Undeletable(t.Context(), s.UUID))

	// Both clones are in use, so neither can be detached.
	b.DetachClones = true
	second, err := b.Snapshot(t.Context(), "snapshot-2", restored.UUID)
	require.NoError(t, err)
	err = b.Undeletable(t.Context(), s.UUID)
	require.ErrorIs(t, err, ErrInUse)
	assert.ErrorContains(t, err, "PersistentVolume pvc-1, PersistentVolume pvc-cloned depend on it through an internal snapshot")
	assert.ErrorContains(t, err, "snapshot "+b.Name+":"+second.UUID)
	assert.NotContains(t, err.Error(), basePrefix)

	// The snapshot can be deleted after the user follows the advice in the error.
	b.DetachClones = false
	require.NoError(t, b.DeleteSnapshot(t.Context(), second.UUID, nil))
	require.NoError(t, b.Delete(t.Context(), restored.UUID))
	require.NoError(t, b.Undeletable(t.Context(), s.UUID))
	require.NoError(t, b.DeleteSnapshot(t.Context(), s.UUID, nil))
	require.NoError(t, b.Undeletable(t.Context(), s.UUID), "it is gone")
	require.NoError(t, b.Delete(t.Context(), cloned.UUID))
}
