package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A recorder records the parameters of a method's calls.
type recorder struct {
	spdkrpc.Caller
	method string
	sent   []any
}

func (r *recorder) Call(ctx context.Context, method string, params, result any) error {
	if method == r.method {
		r.sent = append(r.sent, params)
	}
	return r.Caller.Call(ctx, method, params, result)
}

func (b *testService) aio(t *testing.T, name string, fallocate *bool) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, storeMiB*MiB))
	_, err := b.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: name, Filename: file, BlockSize: new(uint32(4096)), Fallocate: fallocate})
	require.NoError(t, err)
	return file
}

func TestClearMethodDependsOnBdev(t *testing.T) {
	b := newTestService(t, export.TCP)
	release, err := b.rpc.Release(t.Context())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		make func() error
		drop func(context.Context) error
		want spdkrpc.LvolClearMethod
	}{
		"disk-file": {
			func() error { b.aio(t, "disk-file", nil); return nil },
			func(ctx context.Context) error {
				return b.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: "disk-file"})
			}, spdkrpc.LvolClearMethodWriteZeroes,
		},
		"disk-fallocate": {
			func() error { b.aio(t, "disk-fallocate", new(true)); return nil },
			func(ctx context.Context) error {
				return b.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: "disk-fallocate"})
			}, spdkrpc.LvolClearMethodUnmap,
		},
		"disk-memory": {
			func() error {
				_, err := b.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk-memory"), NumBlocks: 16384, BlockSize: 4096})
				return err
			},
			func(ctx context.Context) error {
				return b.rpc.BdevMallocDelete(ctx, spdkrpc.BdevMallocDeleteParams{Name: "disk-memory"})
			}, spdkrpc.LvolClearMethodUnmap,
		},
		// The driver assumes that a stacked bdev does not zero unmapped blocks, even if the bdev
		// below it does.
		"disk-stacked": {
			func() error {
				_, err := b.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: new("disk-below"), NumBlocks: 16384, BlockSize: 4096})
				if err == nil {
					_, err = b.rpc.BdevPassthruCreate(t.Context(), spdkrpc.BdevPassthruCreateParams{Name: "disk-stacked", BaseBdevName: "disk-below"})
				}
				return err
			},
			func(ctx context.Context) error {
				err := b.rpc.BdevPassthruDelete(ctx, spdkrpc.BdevPassthruDeleteParams{Name: "disk-stacked"})
				return errors.Join(err, b.rpc.BdevMallocDelete(ctx, spdkrpc.BdevMallocDeleteParams{Name: "disk-below"}))
			}, spdkrpc.LvolClearMethodWriteZeroes,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "disk-fallocate" && release.Before(rpcschema.MustRelease("v24.05")) {
				t.Skip("bdev_aio has no fallocate before v24.05")
			}
			require.NoError(t, c.make())
			ctx := context.WithoutCancel(t.Context())
			t.Cleanup(func() { assert.NoError(t, c.drop(ctx)) })
			_, err := b.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: name, LvsName: name})
			require.NoError(t, err)
			t.Cleanup(func() {
				assert.NoError(t, b.rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &name}))
			})
			fresh := NewTarget(b.Config).Service(b.rpc) // a new service, because this test adds and removes lvstores
			for mode, want := range map[class.Clear]spdkrpc.LvolClearMethod{
				"": c.want, class.ClearZeroes: c.want, class.ClearWriteZeroes: spdkrpc.LvolClearMethodWriteZeroes,
				class.ClearUnmap: spdkrpc.LvolClearMethodUnmap, class.ClearNone: spdkrpc.LvolClearMethodNone,
			} {
				assert.Equal(t, want, clearMethod(fresh.mustStore(t, name), mode), mode)
			}
			r := &recorder{Caller: b.fault, method: "bdev_lvol_create"}
			_, err = NewTarget(b.Config).Service(spdkrpc.NewClient(r)).Create(t.Context(), fresh.mustStore(t, name), Spec{Name: "pvc-" + name, MinBytes: MiB})
			require.NoError(t, err)
			require.Len(t, r.sent, 1)
			assert.Contains(t, fmt.Sprintf("%s", r.sent[0]), c.want)
		})
	}
	assert.Equal(t, spdkrpc.LvolClearMethodWriteZeroes, clearMethod(Store{Name: "lvs0"}, ""), "a bdev that is not visible")
}

// Releases without bdev_lvol_set_parent cannot create a clone that zeroes its freed clusters.
func TestOldReleasesCannotCloneWithZeroing(t *testing.T) {
	if os.Getenv("SPDK_SOCK") != "" {
		t.Skip("needs a simulated target of a given release; a real target has its own")
	}
	b := newTestServiceOf(t, export.TCP, rpcschema.MustRelease("v24.01"))
	v := b.create(t, "pvc-1", 8)
	before := b.state(t)
	snap, err := b.Snapshot(t.Context(), "s", v.UUID)
	require.NoError(t, err)
	from := Origin{UUID: snap.UUID, Snapshot: true}
	_, err = b.Clone(t.Context(), from, Spec{Name: "pvc-2", MinBytes: 8 * MiB})
	require.ErrorIs(t, err, ErrExposes)
	require.ErrorContains(t, err, "clearMethod")
	require.NoError(t, b.DeleteSnapshot(t.Context(), snap.UUID, nil))
	assert.Equal(t, before, b.state(t), "no lvol is left")

	snap, err = b.Snapshot(t.Context(), "s", v.UUID)
	require.NoError(t, err)
	for range 2 {
		_, err = b.Clone(t.Context(), Origin{UUID: snap.UUID, Snapshot: true}, Spec{Name: "pvc-2", MinBytes: 8 * MiB, Class: class.Class{Clear: class.ClearUnmap}})
		require.NoError(t, err)
	}
}

// A clone that was created without a parent is completed only if no host has written to it.
func TestUnfinishedCloneIsCompleted(t *testing.T) {
	source := Volume{Store: "lvs0", SizeBytes: 8 * MiB}
	made := Volume{Store: "lvs0", SizeBytes: 8 * MiB, Thin: true, Allocated: new(uint64)}
	assert.True(t, isUnfinishedClone(made, source))
	for what, change := range map[string]func(*Volume){
		"written": func(v *Volume) { v.Allocated = new(uint64(1)) }, "not known": func(v *Volume) { v.Allocated = nil }, "thick": func(v *Volume) { v.Thin = false },
		"too large": func(v *Volume) { v.SizeBytes++ }, "a clone": func(v *Volume) { v.Base = "s" }, "elsewhere": func(v *Volume) { v.Store = "lvs1" },
	} {
		v := made
		change(&v)
		assert.False(t, isUnfinishedClone(v, source), what)
	}
}

// Two controllers may create the same clone concurrently, for example during a change of leader.
// The slower call must not delete a volume that the faster call has already returned.
func TestConcurrentClonesSucceed(t *testing.T) {
	b := newTestService(t, export.TCP)
	spec := Spec{Name: "pvc-2", MinBytes: 8 * MiB, Class: class.Class{Clear: class.ClearWriteZeroes}}
	snap, err := b.Snapshot(t.Context(), "s", b.create(t, "pvc-1", 8).UUID)
	require.NoError(t, err)
	skipBeforeSetParent(t, b)
	from := Origin{UUID: snap.UUID, Snapshot: true}
	var first Volume
	late := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_set_parent", Before: func(ctx context.Context, _ any) (err error) {
		first, err = b.Clone(ctx, from, spec)
		return err
	}}
	second, err := b.Target.Service(spdkrpc.NewClient(late)).Clone(t.Context(), from, spec)
	require.NoError(t, err)
	assert.Equal(t, first.UUID, second.UUID)
	now, err := b.Get(t.Context(), first.UUID)
	require.NoError(t, err)
	assert.Equal(t, snap.Name, now.Base)
}

// If SPDK refuses to make a new volume a clone, the volume is kept, because another call may be
// about to complete it. A retry completes the volume.
func TestRefusedSetParentKeepsTheVolume(t *testing.T) {
	b := newTestService(t, export.TCP)
	spec := Spec{Name: "pvc-2", MinBytes: 8 * MiB, Class: class.Class{Clear: class.ClearWriteZeroes}}
	snap, err := b.Snapshot(t.Context(), "s", b.create(t, "pvc-1", 8).UUID)
	require.NoError(t, err)
	skipBeforeSetParent(t, b)
	from := Origin{UUID: snap.UUID, Snapshot: true}
	refusing := &drivertest.FirstCall{Caller: b.fault, Method: "bdev_lvol_set_parent", Before: func(context.Context, any) error {
		return &spdkrpc.Error{Method: "bdev_lvol_set_parent", Kind: spdkrpc.InvalidParams, Code: -32602, Message: "Invalid argument"}
	}}
	s := b.Target.Service(spdkrpc.NewClient(refusing))
	_, err = s.Clone(t.Context(), from, spec)
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, err, spdkrpc.InvalidParams)
	empty, err := b.lookUp(t.Context(), "lvs0/pvc-2")
	require.NoError(t, err)
	_, err = b.Export(t.Context(), empty.UUID, drivertest.Host("n1"))
	require.NoError(t, err)
	_, err = s.Clone(t.Context(), from, spec)
	require.ErrorIs(t, err, ErrIncompatible, "a volume in use is no unfinished clone")
	require.NoError(t, b.Unexport(t.Context(), empty.UUID, nil))
	made, err := s.Clone(t.Context(), from, spec)
	require.NoError(t, err)
	assert.Equal(t, empty.UUID, made.UUID)
	assert.Equal(t, snap.Name, made.Base)
}

func skipBeforeSetParent(t *testing.T, b *testService) {
	release, err := b.rpc.Release(t.Context())
	require.NoError(t, err)
	if !release.Has(rpcschema.SetsParent) {
		t.Skip("this release cannot create clones that zero: see TestOldReleasesCannotCloneWithZeroing")
	}
}

// A disk is the AIO file below an lvstore of a real target. Tests can fill the lvstore's data
// clusters with a pattern.
type disk struct {
	*testService
	t             *testing.T
	name, file    string
	meta, cluster int64
}

const pattern = 0xA5

func newDisk(t *testing.T) *disk {
	if os.Getenv("SPDK_SOCK") == "" {
		t.Skip("the simulated target keeps each volume in its own file; set SPDK_SOCK to run on a real one")
	}
	b := newTestService(t, export.TCP)
	d := &disk{testService: b, t: t, name: "disk-clear", cluster: MiB}
	d.file = b.aio(t, d.name, nil)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		assert.NoError(t, b.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: d.name}))
	})
	_, err := b.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: d.name, LvsName: d.name, ClusterSz: new(uint32(d.cluster))})
	require.NoError(t, err)
	d.meta = storeMiB - b.Service.mustStore(t, d.name).TotalBytes/d.cluster
	return d
}

func (s *Service) mustStore(t *testing.T, name string) Store {
	st, err := s.store(t.Context(), name)
	require.NoError(t, err)
	return st
}

// fill writes the pattern to every data cluster.
func (d *disk) fill() {
	f, err := os.OpenFile(d.file, os.O_WRONLY, 0)
	require.NoError(d.t, err)
	block := bytes.Repeat([]byte{pattern}, int(d.cluster))
	for at := d.meta; at < storeMiB; at++ {
		_, err = f.WriteAt(block, at*d.cluster)
		require.NoError(d.t, err)
	}
	require.NoError(d.t, f.Sync())
	require.NoError(d.t, f.Close())
}

// withPattern counts the clusters that contain any part of the pattern.
func (d *disk) withPattern() (n int) {
	f, err := os.Open(d.file)
	require.NoError(d.t, err)
	defer f.Close()
	buf := make([]byte, d.cluster)
	for at := d.meta; at < storeMiB; at++ {
		_, err = f.ReadAt(buf, at*d.cluster)
		require.NoError(d.t, err)
		if bytes.IndexByte(buf, pattern) >= 0 {
			n++
		}
	}
	return n
}

// reload unloads and reloads the lvstore, as a restart of the target does.
func (d *disk) reload() {
	require.NoError(d.t, d.rpc.BdevAIODelete(d.t.Context(), spdkrpc.BdevAIODeleteParams{Name: d.name}))
	_, err := d.rpc.BdevAIOCreate(d.t.Context(), spdkrpc.BdevAIOCreateParams{Name: d.name, Filename: d.file, BlockSize: new(uint32(4096))})
	require.NoError(d.t, err)
	require.NoError(d.t, d.rpc.BdevWaitForExamine(d.t.Context()))
}

// Freed clusters read as zeros, regardless of which operation frees them, even after a restart of
// the target. Inflating a volume allocates all of its clusters, as writing to the volume would.
func TestDeletedDataIsZeroed(t *testing.T) {
	const mib = 16
	size := func(name string, thick bool) Spec {
		return Spec{Name: name, MinBytes: mib * MiB, Class: class.Class{Thick: thick}}
	}
	for name, run := range map[string]func(d *disk){
		"thick": func(d *disk) {
			v, err := d.Create(t.Context(), d.mustStore(t, d.name), size("v", true))
			require.NoError(t, err)
			d.fill()
			d.reload()
			require.NoError(t, d.Delete(t.Context(), v.UUID))
		},
		"thin": func(d *disk) {
			v, err := d.Create(t.Context(), d.mustStore(t, d.name), size("v", false))
			require.NoError(t, err)
			require.NoError(t, d.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: v.UUID}))
			d.fill()
			d.reload()
			require.NoError(t, d.Delete(t.Context(), v.UUID))
		},
		"snapshot": func(d *disk) {
			v, err := d.Create(t.Context(), d.mustStore(t, d.name), size("v", true))
			require.NoError(t, err)
			s, err := d.Snapshot(t.Context(), "s", v.UUID)
			require.NoError(t, err)
			require.NoError(t, d.Delete(t.Context(), v.UUID))
			d.fill()
			d.reload()
			require.NoError(t, d.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: s.UUID}))
		},
		"shrunk": func(d *disk) {
			v, err := d.Create(t.Context(), d.mustStore(t, d.name), size("v", true))
			require.NoError(t, err)
			v, err = d.grow(t.Context(), v, 2*mib*MiB, 0, nil)
			require.NoError(t, err)
			d.fill()
			d.reload()
			require.NoError(t, d.rpc.BdevLvolResize(t.Context(), spdkrpc.BdevLvolResizeParams{Name: v.UUID, SizeInMiB: mib}))
		},
		"clone": func(d *disk) {
			v, err := d.Create(t.Context(), d.mustStore(t, d.name), size("v", false))
			require.NoError(t, err)
			s, err := d.Snapshot(t.Context(), "s", v.UUID)
			require.NoError(t, err)
			c, err := d.Clone(t.Context(), Origin{UUID: s.UUID, Snapshot: true}, size("c", false))
			require.NoError(t, err)
			require.NoError(t, d.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: c.UUID}))
			d.fill()
			d.reload()
			require.NoError(t, d.Delete(t.Context(), c.UUID))
		},
		"clone of a snapshot that had no clones at a restart": func(d *disk) {
			v, err := d.Create(t.Context(), d.mustStore(t, d.name), size("v", false))
			require.NoError(t, err)
			s, err := d.Snapshot(t.Context(), "s", v.UUID)
			require.NoError(t, err)
			require.NoError(t, d.Delete(t.Context(), v.UUID))
			d.reload()
			before := d.state(t).Lvols
			c, err := d.Clone(t.Context(), Origin{UUID: s.UUID, Snapshot: true}, size("c", false))
			require.NoError(t, err)
			assert.ElementsMatch(t, append(before, d.name+"/c"), d.state(t).Lvols, "no helper is left")
			require.NoError(t, d.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: c.UUID}))
			d.fill()
			d.reload()
			require.NoError(t, d.Delete(t.Context(), c.UUID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t)
			if strings.HasPrefix(name, "clone") {
				skipBeforeSetParent(t, d.testService)
			}
			run(d)
			assert.Equal(t, int(storeMiB-d.meta)-mib, d.withPattern(), "the freed clusters read as zeroes, and all others are unchanged")
		})
	}
}
