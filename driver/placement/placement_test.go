package placement

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
)

const gib = 1 << 30

func TestOrder(t *testing.T) {
	stores := []Store{{Target: "t", Name: "full"}, {Target: "t", Name: "small", FreeBytes: 1 * gib}, {Target: "t", Name: "large", FreeBytes: 3 * gib}}
	first := map[string]int{}
	for i := range 4000 {
		got := Order(stores, fmt.Sprintf("pvc-%d", i))
		require.Equal(t, got, Order([]Store{stores[2], stores[0], stores[1]}, fmt.Sprintf("pvc-%d", i)), "the same each time")
		assert.Equal(t, "full", got[2].Name)
		first[got[0].Name]++
	}
	assert.InDelta(t, 3000, first["large"], 200, "in proportion to free space")
}

func TestTargets(t *testing.T) {
	configured := []string{"t0", "t1"}
	got, err := Targets(configured, class.Class{})
	require.NoError(t, err)
	assert.Equal(t, configured, got)
	got, err = Targets(configured, class.Class{Target: "t1"})
	require.NoError(t, err)
	assert.Equal(t, []string{"t1"}, got)
	_, err = Targets(configured, class.Class{Target: "t9"})
	require.ErrorIs(t, err, class.ErrParameter)
	assert.ErrorContains(t, err, `"t9"`)
}

func TestStores(t *testing.T) {
	all := []Store{{Target: "t0", Name: "a"}, {Target: "t0", Name: "b"}, {Target: "t1", Name: "a"}}
	got, err := Stores(all, class.Class{})
	require.NoError(t, err)
	assert.Equal(t, all, got)
	got, err = Stores(all, class.Class{Store: "a"})
	require.NoError(t, err)
	assert.Equal(t, []Store{all[0], all[2]}, got)
	_, err = Stores(all, class.Class{Store: "c"})
	require.ErrorIs(t, err, class.ErrParameter)
	assert.ErrorContains(t, err, `"c"`)
	_, err = Stores(nil, class.Class{})
	require.ErrorIs(t, err, class.ErrParameter)
}

func TestCheckCopy(t *testing.T) {
	in := func(store string) func() (string, error) { return func() (string, error) { return store, nil } }
	never := func() (string, error) { panic("asked for the lvstore, which the class does not name") }
	require.NoError(t, CheckCopy(class.Class{}, "t0", never))
	require.NoError(t, CheckCopy(class.Class{Target: "t0"}, "t0", never))
	require.NoError(t, CheckCopy(class.Class{Target: "t0", Store: "lvs0"}, "t0", in("lvs0")))
	for says, err := range map[string]error{
		"thin is false":     CheckCopy(class.Class{Thick: true}, "t0", never),
		`target is "t1"`:    CheckCopy(class.Class{Target: "t1"}, "t0", never),
		`lvstore is "lvs1"`: CheckCopy(class.Class{Store: "lvs1"}, "t0", in("lvs0")),
	} {
		require.ErrorIs(t, err, class.ErrParameter)
		assert.ErrorContains(t, err, says)
	}
	errGone := errors.New("gone")
	assert.ErrorIs(t, CheckCopy(class.Class{Store: "lvs0"}, "t0", func() (string, error) { return "", errGone }), errGone)
}

func TestCapacity(t *testing.T) {
	stores := []Store{
		{FreeBytes: 0, TotalBytes: 9 * gib, SmallestBytes: 1},
		{FreeBytes: 1 * gib, TotalBytes: 4 * gib, SmallestBytes: 4 << 20},
		{FreeBytes: 2 * gib, TotalBytes: 2 * gib, SmallestBytes: 1 << 20},
	}
	assert.Equal(t, Capacity{FreeBytes: 3 * gib, MaxBytes: 4 * gib, MinBytes: 1 << 20}, CapacityOf(stores, class.Class{}), "a thin volume may be as large as the store")
	assert.Equal(t, Capacity{FreeBytes: 3 * gib, MaxBytes: 2 * gib, MinBytes: 1 << 20}, CapacityOf(stores, class.Class{Thick: true}))
	assert.Zero(t, CapacityOf(stores[:1], class.Class{}), "nothing can be made")
}
