package volume

import (
	"fmt"
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

// An overview shows the problem of each volume with a few calls. Its messages name no lvstore other
// than the volume's own.
func TestOverviewShowsTheProblemOfEachVolume(t *testing.T) {
	b := newTestService(t, export.TCP)
	thin, missing := b.create(t, "thin", 4).UUID, uuid.NewString()
	other, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "other", MinBytes: 4 * MiB})
	require.NoError(t, err)
	_, err = b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "thick", MinBytes: b.store(t, "lvs0").FreeBytes, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	read := func() Overview {
		o, err := b.Overview(t.Context())
		require.NoError(t, err)
		return o
	}
	o := read()
	assert.True(t, o.Has(thin))
	assert.False(t, o.Has(missing))
	for _, c := range []struct{ id, store, want string }{
		{thin, "lvs0", "LvstoreFull"}, {thin, "", "LvstoreFull"}, {other.UUID, "lvs1", ""}, {missing, "lvs0", "VolumeMissing"}, {missing, "", "VolumeMissing"}, {missing, "lvs7", "LvstoreMissing"},
	} {
		problem, known := o.Problem(c.id, c.store)
		assert.True(t, known)
		assert.Equal(t, c.want, problem.Reason, "%s in %s", c.id, c.store)
		assert.Equal(t, c.want != "" && c.want != "LvstoreFull", problem.Inaccessible)
	}
	b.fault.Reset()
	read()
	calls := b.fault.Calls()
	for n := range 20 {
		_, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: fmt.Sprintf("more-%d", n), MinBytes: 4 * MiB})
		require.NoError(t, err)
	}
	b.fault.Reset()
	read()
	assert.Equal(t, calls, b.fault.Calls(), "the number of calls does not depend on the number of volumes")

	b.detachDisk(t, "lvs0")
	o = read()
	for _, c := range []struct{ id, store, want string }{
		{thin, "lvs0", "LvstoreMissing"}, {thin, "", "LvstoreMissing"}, {other.UUID, "lvs1", ""}, {missing, "lvs1", "VolumeMissing"},
	} {
		problem, known := o.Problem(c.id, c.store)
		assert.True(t, known)
		assert.Equal(t, c.want, problem.Reason, "%s in %s", c.id, c.store)
		if c.store != "lvs0" {
			assert.NotContains(t, problem.Message, "lvs0")
		}
	}
	b.attachDisk(t, "lvs0")

	// Nothing is known about volumes in an lvstore that the driver must not use.
	b.Config.Stores = []string{"lvs0"}
	o = read()
	_, known := o.Problem(other.UUID, "lvs1")
	assert.False(t, known)
	_, known = o.Problem(thin, "lvs0")
	assert.True(t, known)
	b.Config.Stores = nil
}
