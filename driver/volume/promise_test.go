package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
)

// The size of the largest possible volume takes into account the reserve, the limit on the sum of
// sizes and the cluster size.
func TestLargestVolumeFitsTheSpace(t *testing.T) {
	for _, c := range []struct {
		space       Space
		free        int64
		thin, thick int64
	}{
		{Space{}, 100, 100, 100}, {Space{}, 0, 0, 0}, {Space{}, 1, 100, 0}, {Space{}, 7, 100, 4},
		{Space{Reserve: .5}, 60, 100, 8}, {Space{Reserve: .5}, 50, 0, 0}, {Space{Reserve: .5}, 51, 100, 0}, {Space{Reserve: .5}, 40, 0, 0},
	} {
		s := NewTarget(Config{Space: c.space}).Service(nil)
		st := Store{TotalBytes: 100, FreeBytes: c.free, ClusterBytes: 4}
		for thick, want := range map[bool]int64{false: c.thin, true: c.thick} {
			got, err := s.LargestVolume(t.Context(), st, thick)
			require.NoError(t, err)
			assert.Equal(t, want, got, "%+v, %d bytes free, thick: %v", c.space, c.free, thick)
		}
	}
}

// Existing volumes count toward the limit on the sum of sizes.
func TestLargestVolumeConsidersExistingVolumes(t *testing.T) {
	b := newTestService(t, export.TCP)
	b.create(t, "pvc-1", 8)
	st := b.store(t, "lvs0")
	for _, c := range []struct {
		overcommit float64
		others     int64 // sizes of the other volumes
	}{{1, 8 * MiB}, {0.5, 8 * MiB}} {
		config := b.Config
		config.Space = Space{Overcommit: c.overcommit}
		s := NewTarget(config).Service(b.rpc)
		got, err := s.LargestVolume(t.Context(), st, false)
		require.NoError(t, err)
		want := (int64(c.overcommit*float64(st.TotalBytes)) - c.others) / st.ClusterBytes * st.ClusterBytes
		assert.Equal(t, want, got, "%g times the size", c.overcommit)
		u, err := s.Usage(t.Context(), st)
		require.NoError(t, err)
		assert.Equal(t, Usage{PromisedBytes: 8 * MiB}, u)

		_, err = s.Create(t.Context(), st, Spec{Name: "pvc-large", MinBytes: got + st.ClusterBytes, Class: class.Class{}})
		require.ErrorIs(t, err, ErrNoSpace)
		v, err := s.Create(t.Context(), st, Spec{Name: "pvc-fits", MinBytes: got})
		require.NoError(t, err)
		none, err := s.LargestVolume(t.Context(), st, false)
		require.NoError(t, err)
		assert.Less(t, none, st.ClusterBytes)
		require.NoError(t, s.Delete(t.Context(), v.UUID))
		again, err := s.LargestVolume(t.Context(), st, false)
		require.NoError(t, err)
		assert.Equal(t, got, again)
	}
}

// Reserved space counts toward the limit until keep or takeBack is called, and a growing volume
// counts only once.
func TestReservedSpaceCountsUntilItIsReleased(t *testing.T) {
	u := newSum()
	_, err := u.promise("a", 11, 10)
	require.ErrorContains(t, err, "add up to 0, and 11 more would exceed the limit of 10")
	p, err := u.promise("a", 10, 10)
	require.NoError(t, err)
	assert.EqualValues(t, 10, u.total)
	_, err = u.promise("b", 1, 10)
	require.ErrorContains(t, err, "add up to 10, and 1 more would exceed the limit of 10")
	p.keep(Volume{UUID: "id", SizeBytes: 8})
	assert.Equal(t, map[string]int64{"id": 8}, u.sizes, "under its UUID")
	assert.EqualValues(t, 8, u.total)

	p, err = u.promise("id", 10, 10)
	require.NoError(t, err, "it grows by 2")
	p.takeBack()
	assert.Equal(t, map[string]int64{"id": 8}, u.sizes)
	_, err = u.promise("id", 11, 10)
	require.ErrorContains(t, err, "add up to 0, and 11 more")
	p, err = u.promise("id", 9, 10)
	require.NoError(t, err)
	p.keep(Volume{UUID: "id", SizeBytes: 9})
	assert.Equal(t, map[string]int64{"id": 9}, u.sizes)
	p, err = u.promise("new", 1, 10)
	require.NoError(t, err)
	p.takeBack()
	assert.Equal(t, map[string]int64{"id": 9}, u.sizes)
	assert.EqualValues(t, 9, u.total)
	var none *promise
	none.keep(Volume{})
	none.takeBack()
}

// A thin volume may be larger than the free space, but at least some space must be free.
func TestThinVolumesRequireSomeFreeSpace(t *testing.T) {
	for _, c := range []struct {
		free, min, max int64 // in MiB
		thick          bool
		want           error
	}{
		{free: 0, min: 4, want: ErrNoSpace}, {free: 1, min: 4}, {free: 1, min: 100}, {free: 100, min: 101, want: ErrNoSpace},
		{free: 4, min: 4, thick: true}, {free: 4, min: 5, thick: true, want: ErrNoSpace}, {free: 0, min: 4, thick: true, want: ErrNoSpace},
		{free: 100, min: 5, max: 7, want: ErrOutOfRange}, {free: 100, min: 5, max: 8},
	} {
		st := Store{TotalBytes: 100 * MiB, FreeBytes: c.free * MiB, ClusterBytes: 4 * MiB}
		err := Space{}.room(st, Spec{MinBytes: c.min * MiB, MaxBytes: c.max * MiB, Class: class.Class{Thick: c.thick}})
		require.ErrorIs(t, err, c.want, "%+v", c)
	}
	least := Store{TotalBytes: 100 * MiB, FreeBytes: 1, ClusterBytes: 4 * MiB}
	require.NoError(t, Space{}.room(least, Spec{MinBytes: 4 * MiB}))
}
