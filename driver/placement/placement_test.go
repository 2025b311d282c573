package placement

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const mib = 1 << 20

func TestOrder(t *testing.T) {
	target := volume.NewTarget(volume.Config{Name: "t"}).Service(nil)
	var places []place
	for name, free := range map[string]int64{"small": 1 << 30, "large": 3 << 30, "full": 0} {
		places = append(places, place{target, volume.Store{Name: name, FreeBytes: free}})
	}
	first := map[string]int{}
	for i := range 4000 {
		got := order(places, fmt.Sprintf("pvc-%d", i))
		require.Equal(t, got, order([]place{places[2], places[0], places[1]}, fmt.Sprintf("pvc-%d", i)), "the same each time")
		assert.Equal(t, "full", got[2].store.Name)
		first[got[0].store.Name]++
	}
	assert.InDelta(t, 3000, first["large"], 200, "in proportion to free space")
}

// targets are simulated targets with one lvstore each.
func targets(t *testing.T, sizesMiB ...uint64) (services []*volume.Service, clients []*spdkrpc.Client, sims []*spdktest.Target) {
	t.Helper()
	for i, size := range sizesMiB {
		sim, err := spdktest.Start(spdktest.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, sim.Close()) })
		socket := spdkrpc.NewSocket(sim.Socket())
		t.Cleanup(func() { assert.NoError(t, socket.Close()) })
		c := spdkrpc.NewClient(socket)
		_, err = c.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk"), NumBlocks: size << 8, BlockSize: 4096})
		require.NoError(t, err)
		_, err = c.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk", LvsName: "lvs0"})
		require.NoError(t, err)
		services = append(services, volume.NewTarget(volume.Config{Name: fmt.Sprintf("t%d", i)}).Service(c))
		clients, sims = append(clients, c), append(sims, sim)
	}
	return services, clients, sims
}

func TestCreateTriesTheNext(t *testing.T) {
	services, _, _ := targets(t, 100, 100, 1000)
	for i := range 3 { // none of these fits anywhere but on the large one
		p, err := Create(t.Context(), services, class.Class{}, volume.Spec{Name: fmt.Sprint("pvc-", i), MinBytes: 200 * mib, Class: class.Class{Thick: true}})
		require.NoError(t, err)
		assert.Equal(t, "t2", p.Target)
	}
	_, err := Create(t.Context(), services, class.Class{}, volume.Spec{Name: "pvc-9", MinBytes: 500 * mib, Class: class.Class{Thick: true}})
	require.ErrorIs(t, err, volume.ErrNoSpace)
	for _, target := range []string{"t0", "t1", "t2"} {
		assert.ErrorContains(t, err, target)
	}
	_, err = Create(t.Context(), services, class.Class{}, volume.Spec{Name: "pvc-9", MinBytes: 5 * mib, MaxBytes: 6 * mib})
	require.ErrorIs(t, err, volume.ErrOutOfRange)
	require.NotErrorIs(t, err, volume.ErrNoSpace)
}

func TestCreateLooksEverywhereFirst(t *testing.T) {
	services, clients, sims := targets(t, 100, 1000)
	spec := volume.Spec{Name: "pvc-1", MinBytes: 4 * mib}
	_, err := clients[0].BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(true)})
	require.NoError(t, err)
	p, err := Create(t.Context(), services, class.Class{}, spec)
	require.NoError(t, err)
	assert.Equal(t, "t0", p.Target)
	_, err = clients[1].BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "pvc-1", LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(true)})
	require.NoError(t, err)
	_, err = Create(t.Context(), services, class.Class{}, spec)
	require.ErrorIs(t, err, volume.ErrIncompatible, "two of them: which one is meant?")

	sims[0].Crash()
	for name, spec := range map[string]volume.Spec{"there": spec, "new": {Name: "pvc-2", MinBytes: 4 * mib}} {
		_, err = Create(t.Context(), services, class.Class{}, spec)
		require.Error(t, err, name)
		assert.True(t, errors.Is(err, spdkrpc.Unreachable) || errors.Is(err, spdkrpc.OutcomeUnknown), err)
	}
	lvols, err := clients[1].BdevLvolGetLvols(context.WithoutCancel(t.Context()), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	assert.Len(t, lvols, 1, "nothing was made elsewhere")
}

// A filler fills the lvstore just before a create, whose reply then is lost.
type filler struct {
	spdkrpc.Caller
	fill func()
}

func (f *filler) Call(ctx context.Context, method string, params, result any) error {
	if method == "bdev_lvol_create" {
		f.fill()
		return &spdkrpc.Error{Method: method, Kind: spdkrpc.OutcomeUnknown, Message: "the reply was lost"}
	}
	return f.Caller.Call(ctx, method, params, result)
}

// An unknown outcome ends placement: the volume may still be made where it was tried first.
func TestUnknownOutcomeEndsPlacement(t *testing.T) {
	services, clients, sims := targets(t, 1000, 1000)
	spec := volume.Spec{Name: "pvc-1", MinBytes: 200 * mib, Class: class.Class{Thick: true}}
	for i, sim := range sims {
		socket := spdkrpc.NewSocket(sim.Socket())
		t.Cleanup(func() { assert.NoError(t, socket.Close()) })
		fill := func() {
			_, err := clients[i].BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "filler", LvsName: new("lvs0"), SizeInMiB: 900})
			require.NoError(t, err)
		}
		services[i] = volume.NewTarget(volume.Config{Name: fmt.Sprintf("t%d", i)}).Service(spdkrpc.NewClient(&filler{socket, fill}))
	}
	_, err := Create(t.Context(), services, class.Class{}, spec)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	require.NotErrorIs(t, err, volume.ErrNoSpace)
	made := 0
	for _, c := range clients {
		lvols, err := c.BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
		require.NoError(t, err)
		made += len(lvols)
	}
	assert.Equal(t, 1, made, "the filler: nothing was tried in the other lvstore")
}

func TestSameNameOtherwise(t *testing.T) {
	services, _, _ := targets(t, 100)
	_, err := Create(t.Context(), services, class.Class{}, volume.Spec{Name: "pvc-1", MinBytes: 4 * mib})
	require.NoError(t, err)
	_, err = Create(t.Context(), services, class.Class{}, volume.Spec{Name: "pvc-1", MinBytes: 4 * mib, Class: class.Class{Thick: true}})
	require.ErrorIs(t, err, volume.ErrIncompatible)
}

// A clone lies where its source does: a class that wants it elsewhere is refused, before anything is made.
func TestCloneStaysWithItsSource(t *testing.T) {
	services, clients, _ := targets(t, 1000)
	source, err := Create(t.Context(), services, class.Class{}, volume.Spec{Name: "pvc-1", MinBytes: 4 * mib})
	require.NoError(t, err)
	from, spec := volume.Origin{UUID: source.UUID}, volume.Spec{Name: "pvc-2", MinBytes: 4 * mib}
	for says, p := range map[string]class.Class{`target is "t1"`: {Target: "t1"}, `lvstore is "lvs1"`: {Store: "lvs1"}} {
		_, err := Clone(t.Context(), services[0], p, from, spec)
		require.ErrorIs(t, err, class.ErrParameter)
		require.ErrorContains(t, err, says)
	}
	thick := spec
	thick.Class.Thick = true
	_, err = Clone(t.Context(), services[0], class.Class{}, from, thick)
	require.ErrorIs(t, err, class.ErrParameter)
	_, err = Clone(t.Context(), services[0], class.Class{Store: "lvs0"}, volume.Origin{UUID: "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}, spec)
	require.ErrorIs(t, err, volume.ErrNotFound)
	lvols, err := clients[0].BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	assert.Len(t, lvols, 1, "nothing was made")

	p, err := Clone(t.Context(), services[0], class.Class{Target: "t0", Store: "lvs0"}, from, spec)
	require.NoError(t, err)
	assert.Equal(t, "t0", p.Target)
	assert.Equal(t, "lvs0", p.Store)
	assert.NotEqual(t, source.UUID, p.UUID)
}
