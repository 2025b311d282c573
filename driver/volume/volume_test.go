package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

const (
	storeMiB   = 200
	clusterMiB = 4
	// leastTag is the lowest tag of the initiator groups that package export creates for hosts.
	leastTag = 1000
)

// A testService is a service with injected faults for a target with two lvstores. The target is
// simulated, or real if SPDK_SOCK is set. On a real target, the tests also check the driver's
// assumptions about SPDK.
type testService struct {
	*Service
	rpc   *spdkrpc.Client // without injected faults
	fault *drivertest.FaultyCaller
	disks map[string]string // files below the lvstores
	sim   *spdktest.Target  // nil for a real target
}

func newTestService(t *testing.T, tr export.Transport) *testService {
	t.Helper()
	return newTestServiceOf(t, tr, rpcschema.Release{})
}

// newTestServiceOf is like newTestService, with a simulated target of the given release. A real
// target has its own release.
func newTestServiceOf(t *testing.T, tr export.Transport, r rpcschema.Release) *testService {
	t.Helper()
	var socket string
	var sim *spdktest.Target
	if realtarget.Given() {
		socket = realtarget.Socket(t)
	} else {
		target, err := spdktest.Start(spdktest.Options{Release: r})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, target.Close()) })
		socket, sim = target.Socket(), target
	}
	caller := spdkrpc.NewSocket(socket)
	t.Cleanup(func() { assert.NoError(t, caller.Close()) })
	b := &testService{rpc: spdkrpc.NewClient(caller), fault: &drivertest.FaultyCaller{Caller: caller}, disks: map[string]string{}, sim: sim}
	for _, store := range []string{"lvs0", "lvs1"} {
		b.makeStore(t, store)
	}
	port := "4420"
	if tr == export.ISCSI {
		port = "3260"
		b.makePortal(t)
	}
	b.Service = NewTarget(Config{Config: export.Config{Name: "t0", Transport: tr, Listen: []export.Portal{{Addr: "127.0.0.1", Port: port}}}}).Service(spdkrpc.NewClient(b.fault))
	return b
}

func (b *testService) makeStore(t *testing.T, store string) {
	t.Helper()
	b.makeStoreOn(t, store, filepath.Join(t.TempDir(), store))
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		assert.NoError(t, b.rpc.BdevLvolDeleteLvstore(ctx, spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: &store}))
		b.removeExports(t, ctx)
		assert.NoError(t, b.rpc.BdevAIODelete(ctx, spdkrpc.BdevAIODeleteParams{Name: "disk-" + store}))
	})
}

func (b *testService) makeStoreOn(t *testing.T, store, disk string) {
	t.Helper()
	b.disks[store] = b.newDisk(t, disk, storeMiB)
	b.attachDisk(t, store)
	_, err := b.rpc.BdevLvolCreateLvstore(t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "disk-" + store, LvsName: store, ClusterSz: new(uint32(clusterMiB * MiB))})
	require.NoError(t, err)
}

func (b *testService) newDisk(t *testing.T, path string, mib int64) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, mib*MiB))
	return path
}

// attachDisk creates the bdev of an lvstore; detachDisk deletes it, which unloads the lvstore.
func (b *testService) attachDisk(t *testing.T, store string) {
	t.Helper()
	_, err := b.rpc.BdevAIOCreate(t.Context(), spdkrpc.BdevAIOCreateParams{Name: "disk-" + store, Filename: b.disks[store], BlockSize: new(uint32(4096))})
	require.NoError(t, err)
	require.NoError(t, b.rpc.BdevWaitForExamine(t.Context()))
}

func (b *testService) detachDisk(t *testing.T, store string) {
	t.Helper()
	require.NoError(t, b.rpc.BdevAIODelete(t.Context(), spdkrpc.BdevAIODeleteParams{Name: "disk-" + store}))
}

// makePortal creates the portal group and the initiator group that SPDK's spdk-csi creates and
// never removes.
func (b *testService) makePortal(t *testing.T) {
	t.Helper()
	portals, err := b.rpc.ISCSIGetPortalGroups(t.Context())
	require.NoError(t, err)
	if len(portals) == 0 { // on a real target, the groups may already exist
		require.NoError(t, b.rpc.ISCSICreatePortalGroup(t.Context(), spdkrpc.ISCSICreatePortalGroupParams{Tag: 1, Portals: []spdkrpc.ISCSIPortal{{Host: "127.0.0.1", Port: "3260"}}}))
		require.NoError(t, b.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 1, Initiators: []string{"ANY"}, Netmasks: []string{"ANY"}}))
	}
}

// removeExports removes the exports that the test leaves behind on a real target.
func (b *testService) removeExports(t *testing.T, ctx context.Context) {
	t.Helper()
	subs, err := b.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	for _, sub := range subs {
		if sub.Subtype == "NVMe" {
			assert.NoError(t, b.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: sub.NQN}))
		}
	}
	nodes, err := b.rpc.ISCSIGetTargetNodes(ctx)
	require.NoError(t, err)
	for _, n := range nodes {
		assert.NoError(t, b.rpc.ISCSIDeleteTargetNode(ctx, spdkrpc.ISCSIDeleteTargetNodeParams{Name: n.Name}))
	}
	groups, err := b.rpc.ISCSIGetInitiatorGroups(ctx)
	require.NoError(t, err)
	for _, g := range groups {
		if g.Tag >= leastTag {
			assert.NoError(t, b.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: g.Tag}))
		}
	}
}

func (b *testService) store(t *testing.T, name string) Store {
	t.Helper()
	st, err := b.Service.store(t.Context(), name)
	require.NoError(t, err)
	return st
}

func (b *testService) create(t *testing.T, name string, mib int64) Volume {
	t.Helper()
	v, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: name, MinBytes: mib * MiB})
	require.NoError(t, err)
	return v
}

// A state contains all objects that operations may leave behind on a target.
type state struct {
	Free       map[string]int64
	Lvols      []string
	Subsystems []string
	Targets    []string
	Groups     int
}

func (b *testService) state(t *testing.T) state {
	t.Helper()
	s := state{Free: map[string]int64{}}
	ctx := context.Background()
	stores, err := b.rpc.BdevLvolGetLvstores(ctx, spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(t, err)
	for _, st := range stores {
		s.Free[st.Name] = int64(st.FreeClusters)
	}
	lvols, err := b.rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	for _, l := range lvols {
		s.Lvols = append(s.Lvols, l.Alias)
	}
	subs, err := b.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	for _, sub := range subs {
		if sub.Subtype == "NVMe" {
			s.Subsystems = append(s.Subsystems, sub.NQN)
		}
	}
	if b.Transport == export.ISCSI {
		nodes, err := b.rpc.ISCSIGetTargetNodes(ctx)
		require.NoError(t, err)
		for _, n := range nodes {
			s.Targets = append(s.Targets, n.Name)
		}
		groups, err := b.rpc.ISCSIGetInitiatorGroups(ctx)
		require.NoError(t, err)
		s.Groups = len(groups)
	}
	return s
}

func TestFiftyConcurrentCreatesProduceOneVolume(t *testing.T) {
	b := newTestService(t, export.TCP)
	st := b.store(t, "lvs0")
	ids := make([]string, 50)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			v, err := b.Create(t.Context(), st, Spec{Name: "pvc-1", MinBytes: 8 * MiB})
			assert.NoError(t, err)
			ids[i] = v.UUID
		})
	}
	wg.Wait()
	for _, id := range ids {
		assert.Equal(t, ids[0], id)
	}
	assert.Len(t, b.state(t).Lvols, 1)
}

func TestVolumeNamesAreEncoded(t *testing.T) {
	long := fmt.Sprintf("%0128d", 7)
	for name, want := range map[string]string{
		"pvc-5f3c":        "pvc-5f3c",
		"a.b_C-1":         "a.b_C-1",
		"with/slash":      "vwith-slash-",
		"snap.mine":       "vsnap.mine-",
		"base.mine":       "vbase.mine-",
		"näme mit spaces": "vn-me-mit-spaces-",
		long:              "v" + long[:29] + "-",
		"-":               "v--",
	} {
		got := LvolName(name)
		assert.Contains(t, got, want)
		assert.LessOrEqual(t, len(got), nameMax)
		assert.Equal(t, got, LvolName(name))
		assert.Regexp(t, plainName, got)
		_, ours := parseName(got)
		assert.False(t, ours)
	}
	id := uuid.NewString()
	n, ours := parseName(baseName("x", id))
	assert.True(t, ours && n.base)
	assert.Equal(t, id, n.source)
}

func TestOnlyAllowedStoresAreUsed(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	only := NewTarget(Config{Config: export.Config{Name: "t0"}, Stores: []string{"lvs1"}}).Service(b.rpc)
	stores, err := only.Stores(t.Context())
	require.NoError(t, err)
	require.Len(t, stores, 1)
	assert.Equal(t, "lvs1", stores[0].Name)
	_, err = only.Get(t.Context(), v.UUID)
	require.ErrorIs(t, err, ErrStoreForbidden)
	require.ErrorIs(t, only.Delete(t.Context(), v.UUID), ErrStoreForbidden)

	gone := NewTarget(Config{Config: export.Config{Name: "t0"}, Stores: []string{"lvs0", "lvs7"}}).Service(b.rpc)
	_, err = gone.Stores(t.Context())
	require.ErrorIs(t, err, ErrStoreMissing)
	require.ErrorIs(t, gone.Delete(t.Context(), uuid.NewString()), ErrStoreMissing, "it may be in the lvstore that is not loaded")
	require.ErrorIs(t, gone.DeleteSnapshot(t.Context(), uuid.NewString(), nil), ErrStoreMissing)
	require.NoError(t, b.Delete(t.Context(), uuid.NewString()))
}

func TestVolumeIsExpanded(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 8)
	for name, c := range map[string]struct {
		min, max, size int64
		err            error
	}{
		"rounded up":        {9 * MiB, 0, 12 * MiB, nil},
		"again":             {9 * MiB, 0, 12 * MiB, nil},
		"smaller":           {4 * MiB, 0, 12 * MiB, nil},
		"limit below":       {4 * MiB, 5 * MiB, 12 * MiB, ErrOutOfRange},
		"no size in range":  {13 * MiB, 15 * MiB, 12 * MiB, ErrOutOfRange},
		"larger than store": {9999 * MiB, 0, 12 * MiB, ErrOutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "rounded up" {
				_, err := b.Expand(t.Context(), v.UUID, 9*MiB, 0)
				require.NoError(t, err)
			}
			size, err := b.Expand(t.Context(), v.UUID, c.min, c.max)
			require.ErrorIs(t, err, c.err)
			assert.Equal(t, c.size, size)
		})
	}
	thick, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "thick", MinBytes: 100 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	_, err = b.Expand(t.Context(), thick.UUID, b.store(t, "lvs1").TotalBytes, 0)
	require.NoError(t, err)
	_, err = b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "filler", MinBytes: 150 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	small, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: "small", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	_, err = b.Expand(t.Context(), small.UUID, 160*MiB, 0)
	require.ErrorIs(t, err, ErrNoSpace)
	_, err = b.Expand(t.Context(), uuid.NewString(), MiB, 0)
	require.ErrorIs(t, err, ErrNotFound)
}
