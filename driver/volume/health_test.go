package volume

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
)

func reasons(h Health) (reasons []string) {
	for _, c := range h.Conditions {
		reasons = append(reasons, c.Reason)
	}
	return reasons
}

// A full lvstore is reported as a problem of only its thin volumes.
func TestFullLvstoreIsReportedForThinVolumes(t *testing.T) {
	b := newTestService(t, export.TCP)
	thin := b.create(t, "thin", 4)
	elsewhere, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "elsewhere", MinBytes: 4 * MiB})
	require.NoError(t, err)
	list := func() (adverse []Health) {
		adverse, next, err := b.ListHealth(t.Context(), Page{})
		require.NoError(t, err)
		assert.Empty(t, next)
		return adverse
	}
	assert.Empty(t, list())
	thick, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "thick", MinBytes: b.store(t, "lvs0").FreeBytes, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	require.Zero(t, b.store(t, "lvs0").FreeBytes)
	adverse := list()
	require.Len(t, adverse, 1)
	assert.Equal(t, thin.UUID, adverse[0].UUID)
	for v, want := range map[string][]string{thin.UUID: {"LvstoreFull"}, thick.UUID: nil, elsewhere.UUID: nil} {
		h, err := b.Health(t.Context(), v)
		require.NoError(t, err)
		assert.Equal(t, want, reasons(h))
	}
	require.NoError(t, b.Delete(t.Context(), thick.UUID))
	assert.Empty(t, list())
	_, err = b.Health(t.Context(), uuid.NewString())
	require.ErrorIs(t, err, ErrNotFound)
}

// A volume is inaccessible if its lvstore is not loaded, or if it may be in an lvstore that is not
// loaded.
func TestVolumeWithoutItsLvstoreIsInaccessible(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	b.detachDisk(t, "lvs0")
	h, err := b.Health(t.Context(), v.UUID)
	require.NoError(t, err)
	require.Equal(t, []string{"LvstoreMissing"}, reasons(h))
	assert.True(t, h.Conditions[0].Inaccessible)
	_, _, err = b.ListHealth(t.Context(), Page{})
	require.ErrorIs(t, err, ErrStoreMissing, "which volumes are there is not known")
	b.attachDisk(t, "lvs0")
	h, err = b.Health(t.Context(), v.UUID)
	require.NoError(t, err)
	assert.Empty(t, h.Conditions)
}

// HealthEach agrees with Health, and reports missing volumes as well. It omits volumes with a wrong
// handle.
func TestHealthOfSeveralVolumesIsReported(t *testing.T) {
	b := newTestService(t, export.TCP)
	thin, missing := b.create(t, "thin", 4), uuid.NewString()
	elsewhere, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "elsewhere", MinBytes: 4 * MiB})
	require.NoError(t, err)
	snap, err := b.Snapshot(t.Context(), "snap", thin.UUID)
	require.NoError(t, err)
	_, err = b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "thick", MinBytes: b.store(t, "lvs0").FreeBytes, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	read := func() map[string][]string {
		all, err := b.HealthEach(t.Context(), []string{thin.UUID, missing, elsewhere.UUID, snap.UUID})
		require.NoError(t, err)
		found := map[string][]string{}
		for id, h := range all {
			assert.Equal(t, id, h.UUID)
			found[id] = reasons(h)
			if one, err := b.Health(t.Context(), id); err == nil {
				assert.Equal(t, one, h)
			}
		}
		return found
	}
	assert.Equal(t, map[string][]string{thin.UUID: {"LvstoreFull"}, missing: {"VolumeMissing"}, elsewhere.UUID: nil}, read())
	b.detachDisk(t, "lvs0")
	assert.Equal(t, map[string][]string{thin.UUID: {"LvstoreMissing"}, missing: {"LvstoreMissing"}, elsewhere.UUID: nil}, dropUnknown(read(), snap.UUID))
	b.attachDisk(t, "lvs0")
}

// dropUnknown removes an id, because a snapshot in a missing lvstore cannot be recognized.
func dropUnknown(all map[string][]string, id string) map[string][]string {
	delete(all, id)
	return all
}
