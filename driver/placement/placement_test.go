package placement

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func anywhere(string) int { return 0 }

func TestSpreadOrderIsProportionalToFreeSpace(t *testing.T) {
	stores := []Store{{Target: "t", Name: "full"}, {Target: "t", Name: "small", FreeBytes: 1 * gib}, {Target: "t", Name: "large", FreeBytes: 3 * gib}}
	first := map[string]int{}
	for i := range 4000 {
		got := Order(stores, fmt.Sprintf("pvc-%d", i), "", anywhere)
		require.Equal(t, got, Order([]Store{stores[2], stores[0], stores[1]}, fmt.Sprintf("pvc-%d", i), class.Spread, anywhere), "the order does not depend on the call")
		assert.Equal(t, "full", got[2].Name)
		first[got[0].Name]++
	}
	assert.InDelta(t, 3000, first["large"], 200, "in proportion to free space")
}

func TestOrderFollowsFreeSpace(t *testing.T) {
	stores := []Store{{Target: "a", Name: "2", RoomBytes: 2}, {Target: "b", Name: "3", RoomBytes: 3}, {Target: "a", Name: "1", RoomBytes: 1}}
	names := func(strategy class.Strategy, rank func(string) int) (names []string) {
		for _, s := range Order(stores, "pvc-1", strategy, rank) {
			names = append(names, s.Name)
		}
		return names
	}
	assert.Equal(t, []string{"3", "2", "1"}, names(class.MostFree, anywhere))
	assert.Equal(t, []string{"1", "2", "3"}, names(class.BinPack, anywhere))
	preferA := func(target string) int { return map[string]int{"a": 0, "b": 1}[target] }
	assert.Equal(t, []string{"2", "1", "3"}, names(class.MostFree, preferA), "a preferred topology counts more than room")
}

func TestStoresMatchTheClass(t *testing.T) {
	all := []Store{{Target: "t0", Name: "a"}, {Target: "t0", Name: "b"}, {Target: "t1", Name: "a"}}
	got, err := Stores(all, class.Class{})
	require.NoError(t, err)
	assert.Equal(t, all, got)
	got, err = Stores(all, class.Class{Stores: []string{"a"}})
	require.NoError(t, err)
	assert.Equal(t, []Store{all[0], all[2]}, got)
	_, err = Stores(all, class.Class{Stores: []string{"c", "d"}})
	require.ErrorIs(t, err, class.ErrParameter)
	assert.ErrorContains(t, err, "c or d")
	_, err = Stores(nil, class.Class{})
	require.ErrorIs(t, err, class.ErrParameter)
}

func TestCopyThatContradictsItsClassIsRefused(t *testing.T) {
	in := func(store string) func() (string, error) { return func() (string, error) { return store, nil } }
	t0 := Target{Name: "t0", Labels: map[string]string{"disk": "nvme"}}
	never := func() (string, error) { panic("the lvstore was requested although the class does not name one") }
	require.NoError(t, CheckCopy(class.Class{}, t0, never))
	require.NoError(t, CheckCopy(class.Class{Targets: []string{"t0"}, TargetLabels: map[string]string{"disk": "nvme"}}, t0, never))
	require.NoError(t, CheckCopy(class.Class{Targets: []string{"t0"}, Stores: []string{"lvs1", "lvs0"}}, t0, in("lvs0")))
	for says, err := range map[string]error{
		"thin is false":     CheckCopy(class.Class{Thick: true}, t0, never),
		`target is "t1"`:    CheckCopy(class.Class{Targets: []string{"t1"}}, t0, never),
		`targetLabels`:      CheckCopy(class.Class{TargetLabels: map[string]string{"disk": "hdd"}}, t0, never),
		`lvstore is "lvs1"`: CheckCopy(class.Class{Stores: []string{"lvs1"}}, t0, in("lvs0")),
	} {
		require.ErrorIs(t, err, class.ErrParameter)
		assert.ErrorContains(t, err, says)
	}
	errGone := errors.New("gone")
	assert.ErrorIs(t, CheckCopy(class.Class{Stores: []string{"lvs0"}}, t0, func() (string, error) { return "", errGone }), errGone)
}

func TestCapacityCountsUsableSpace(t *testing.T) {
	stores := []Store{
		{FreeBytes: 9 * gib, RoomBytes: 0, SmallestBytes: 1},
		{FreeBytes: 1 * gib, RoomBytes: 4 * gib, SmallestBytes: 4 << 20},
		{FreeBytes: 2 * gib, RoomBytes: 2 * gib, SmallestBytes: 1 << 20},
	}
	assert.Equal(t, Capacity{Bytes: 6 * gib, MaxBytes: 4 * gib, MinBytes: 1 << 20}, CapacityOf(stores), "a thin volume may be larger than what is free")
	assert.Zero(t, CapacityOf(stores[:1]), "no volume can be created")
}

func TestPairUsesDifferentZones(t *testing.T) {
	zone := func(name, zone string) Target {
		if zone == "" {
			return Target{Name: name}
		}
		return Target{Name: name, Topology: map[string]string{"zone": zone}}
	}
	targets := map[string]Target{"a": zone("a", "1"), "b": zone("b", "2"), "c": zone("c", "1"), "d": zone("d", "")}
	store := func(target, name string) Store { return Store{Target: target, Name: name} }
	for name, c := range map[string]struct {
		stores []Store
		want   [2]string
	}{
		"none":                              {nil, [2]string{}},
		"one target only":                   {[]Store{store("a", "x"), store("a", "y")}, [2]string{}},
		"the first two targets":             {[]Store{store("a", "x"), store("a", "y"), store("c", "x"), store("d", "x")}, [2]string{"a", "c"}},
		"no node reaches both":              {[]Store{store("a", "x"), store("b", "x")}, [2]string{}},
		"a later one":                       {[]Store{store("a", "x"), store("b", "x"), store("c", "x")}, [2]string{"a", "c"}},
		"the first has no partner":          {[]Store{store("b", "x"), store("a", "x"), store("c", "x")}, [2]string{"a", "c"}},
		"every node reaches one of the two": {[]Store{store("b", "x"), store("d", "x")}, [2]string{"b", "d"}},
	} {
		t.Run(name, func(t *testing.T) {
			first, second, ok := Pair(c.stores, targets, "")
			assert.Equal(t, c.want, [2]string{first.Target, second.Target})
			assert.Equal(t, c.want[0] != "", ok)
		})
	}
}

// A volume with two replicas needs room on two targets, so the target with the second most room
// limits the capacity.
func TestSecondServerLimitsTheCapacityForPairs(t *testing.T) {
	const head = 4 * mib
	here, there := map[string]string{"zone": "here"}, map[string]string{"zone": "there"}
	store := func(target string, room int64) Store {
		return Store{Target: target, RoomBytes: room, SmallestBytes: 4 * mib}
	}
	large, medium, small := store("large", 100*mib), store("medium", 54*mib), store("small", 14*mib)
	targets := map[string]Target{"large": {}, "medium": {}, "small": {}}
	assert.Equal(t, Capacity{Bytes: 50 * mib, MaxBytes: 50 * mib, MinBytes: 4 * mib}, PairCapacity([]Store{small, large, medium}, targets, "", head))
	assert.Equal(t, Capacity{Bytes: 60 * mib, MaxBytes: 50 * mib, MinBytes: 4 * mib}, PairCapacity([]Store{small, large, medium, store("medium", 14*mib)}, targets, "", head), "two lvstores")
	assert.Zero(t, PairCapacity([]Store{large, large}, targets, "", head), "one target")
	assert.Zero(t, PairCapacity([]Store{large, store("small", 7*mib)}, targets, "", head), "no room for the smallest replica")
	assert.Equal(t, Capacity{Bytes: 10 * mib, MaxBytes: 10 * mib, MinBytes: 4 * mib}, PairCapacity([]Store{small, large, medium},
		map[string]Target{"large": {Topology: here}, "medium": {Topology: there}, "small": {}}, "", head), "no node reaches both of the largest targets")
	racks := map[string]Target{"large": {Labels: map[string]string{"rack": "1"}}, "medium": {Labels: map[string]string{"rack": "1"}}, "small": {Labels: map[string]string{"rack": "2"}}}
	assert.Equal(t, Capacity{Bytes: 10 * mib, MaxBytes: 10 * mib, MinBytes: 4 * mib}, PairCapacity([]Store{small, large, medium}, racks, "rack", head), "the largest targets are in one rack")
	first, second, ok := Pair([]Store{large, medium, small}, racks, "rack")
	assert.True(t, ok && first.Target == "large" && second.Target == "small")
	_, _, ok = Pair([]Store{large, medium}, racks, "rack")
	assert.False(t, ok)
	large.SmallestBytes, medium.SmallestBytes = 16*mib, 16*mib
	assert.EqualValues(t, 12*mib, PairCapacity([]Store{large, medium}, targets, "", head).MinBytes, "the head is in the first cluster")
}
