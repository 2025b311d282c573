package volume

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (b *testService) cloneOf(t *testing.T, name string, of Volume) Volume {
	t.Helper()
	c, err := b.Clone(t.Context(), Origin{UUID: of.UUID}, Spec{Name: name, MinBytes: of.SizeBytes, Class: b.cloneClass(t)})
	require.NoError(t, err)
	return c
}

// depth counts the snapshots below a volume.
func (b *testService) depth(t *testing.T, v Volume) (n int) {
	t.Helper()
	for at := b.get(t, v); at.Base != ""; n++ {
		var err error
		at, err = b.lookUp(t.Context(), at.Store+"/"+at.Base)
		require.NoError(t, err)
	}
	return n
}

// writing simulates a target that reports that a volume owns clusters, as if a host had written to
// the volume.
type writing struct {
	spdkrpc.Caller
	volume   string // UUID of the volume
	clusters uint64
	unknown  bool // the release does not count clusters
}

func (w *writing) Call(ctx context.Context, method string, params, result any) error {
	err := w.Caller.Call(ctx, method, params, result)
	if list, ok := result.(*[]spdkrpc.BdevInfo); ok && method == "bdev_get_bdevs" {
		for _, b := range *list {
			if l := b.DriverSpecific.Lvol; l != nil && b.UUID == w.volume {
				if l.NumAllocatedClusters = &w.clusters; w.unknown {
					l.NumAllocatedClusters = nil
				}
			}
		}
	}
	return err
}

func behindWriting(b *testService, v Volume) *writing {
	w := &writing{Caller: &freezer{Caller: b.fault}, volume: v.UUID}
	b.Service = b.Target.Service(spdkrpc.NewClient(w))
	return w
}

// Clones of an unchanged volume share one internal snapshot, so that the chain remains short.
func TestClonesShareABase(t *testing.T) {
	for name, thick := range map[string]bool{"thin": false, "thick": true} {
		t.Run(name, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			behindFreezer(b)
			v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "pvc-0", MinBytes: 4 * MiB, Class: class.Class{Thick: thick}})
			require.NoError(t, err)
			if v.Allocated == nil {
				t.Skip("this release does not count a volume's clusters")
			}
			var clones []Volume
			for i := range 20 {
				clones = append(clones, b.cloneOf(t, fmt.Sprint("clone-", i), v))
			}
			assert.Equal(t, 1, b.depth(t, v))
			assert.Equal(t, 1, b.depth(t, clones[19]))
			again := b.cloneOf(t, "clone-7", v)
			assert.Equal(t, clones[7].UUID, again.UUID)
			_, err = b.Clone(t.Context(), Origin{UUID: clones[3].UUID}, Spec{Name: "clone-7", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
			require.ErrorIs(t, err, ErrIncompatible)
			of := b.cloneOf(t, "clone-of-a-clone", clones[3])
			assert.Equal(t, 2, b.depth(t, of), "its origin is the clone, so it has a base of its own")
			for _, c := range clones {
				require.NoError(t, b.Delete(t.Context(), c.UUID))
			}
			require.NoError(t, b.Delete(t.Context(), of.UUID))
			assert.Zero(t, b.depth(t, v))
			cleanUp(t, b, "")
		})
	}
}

// A base is reused only if it definitely contains the same data as the volume.
func TestUnsuitableBasesAreNotReused(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, b *testService, w *writing, v Volume){
		"written":           func(_ *testing.T, _ *testService, w *writing, _ Volume) { w.clusters = 1 },
		"clusters unknown":  func(_ *testing.T, _ *testService, w *writing, _ Volume) { w.unknown = true },
		"writes uncounted":  func(_ *testing.T, b *testService, _ *writing, _ Volume) { b.UncountedWrites = true },
		"a snapshot beside": func(t *testing.T, b *testService, _ *writing, v Volume) { snapshots(t, b, v) },
		"exported": func(t *testing.T, b *testService, _ *writing, v Volume) {
			_, err := b.Export(t.Context(), v.UUID, drivertest.MultipathHost("n1"))
			require.NoError(t, err)
		},
		"grown": func(t *testing.T, b *testService, _ *writing, v Volume) {
			if b.largerBytes(t) == 4*MiB {
				t.Skip("this release cannot grow a volume that has a snapshot below it")
			}
			_, err := b.Expand(t.Context(), v.UUID, 8*MiB, 0)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestService(t, export.TCP)
			v := b.create(t, "pvc-1", 4)
			w := behindWriting(b, v)
			first := b.cloneOf(t, "pvc-2", v)
			change(t, b, w, v)
			second := b.cloneOf(t, "pvc-3", b.get(t, v))
			assert.NotEqual(t, first.Base, second.Base)
			assert.Equal(t, b.get(t, v).Base, second.Base)
			require.NoError(t, b.Unexport(t.Context(), v.UUID, nil))
			cleanUp(t, b, "")
		})
	}
}

// Bases that lost their clones while a host was using the volume are deleted before the next clone
// is created.
func TestBasesAreCollapsed(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-0", 4)
	w := behindWriting(b, v)
	w.clusters = 1 // prevents the reuse of bases
	for round := range 3 {
		_, err := b.Export(t.Context(), v.UUID, drivertest.MultipathHost("n1"))
		require.NoError(t, err)
		for i := range 3 {
			c := b.cloneOf(t, fmt.Sprintf("clone-%d-%d", round, i), v)
			require.NoError(t, b.Delete(t.Context(), c.UUID))
		}
		assert.Equal(t, 1, b.depth(t, v), "the last base stays, as a host uses the volume")
		require.NoError(t, b.Unexport(t.Context(), v.UUID, nil))
	}
	c := b.cloneOf(t, "clone", v)
	assert.Equal(t, 1, b.depth(t, v))
	assert.Equal(t, 1, b.depth(t, c))
	cleanUp(t, b, "")
}

func TestSnapshotReuseSurvivesCrashes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	drivertest.Serial(t)
	for name, clusters := range map[string]uint64{"shared base": 0, "collapsed base": 1} {
		t.Run(name, func(t *testing.T) {
			crashAll(t, operation{name: name, prepare: func(t *testing.T, b *testService) func(context.Context) (string, error) {
				v := b.create(t, "pvc-1", 4)
				w := behindWriting(b, v)
				w.clusters = clusters
				b.seen.swept.Store(true)
				c := b.cloneOf(t, "pvc-2", v)
				if clusters > 0 {
					_, err := b.Export(t.Context(), v.UUID, drivertest.Host("n1"))
					require.NoError(t, err)
					require.NoError(t, b.Delete(t.Context(), c.UUID))
					require.NoError(t, b.Unexport(t.Context(), v.UUID, nil))
				}
				return func(ctx context.Context) (string, error) {
					c, err := b.Clone(ctx, Origin{UUID: v.UUID}, Spec{Name: "pvc-3", MinBytes: 4 * MiB, Class: b.cloneClass(t)})
					return c.UUID, err
				}
			}}, func(t *testing.T) *testService { return newTestService(t, export.TCP) })
		})
	}
}
