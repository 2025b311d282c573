package snapshot

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// inflated is the size of each inflated volume, in clusters of 1 MiB, as in the tests' lvstore.
const inflated = 64

// numbers writes first, first+1, … to a volume's clusters. If write is false, it reads the clusters
// instead, and returns how many of these numbers the volume lacks.
func (g *target) numbers(volume string, first uint64, write bool) (lost int) {
	g.t.Helper()
	nqn, address := g.share(volume)
	defer g.unshare(nqn)
	d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:host"})
	require.NoError(g.t, err)
	defer func() { assert.NoError(g.t, d.Close()) }()
	block := make([]byte, blocks.Size)
	for i := range uint64(inflated) {
		if write {
			binary.LittleEndian.PutUint64(block, first+i)
			_, err = d.WriteAt(block, int64(i)*mib)
			require.NoError(g.t, err)
		} else if _, err = d.ReadAt(block, int64(i)*mib); err != nil || binary.LittleEndian.Uint64(block) != first+i {
			lost++
		}
	}
	return lost
}

// sources creates volumes with numbers, each above a snapshot that owns the clusters.
func (g *target) sources(round, count int) (volumes []string) {
	g.t.Helper()
	for i := range count {
		v, err := g.rpc.BdevLvolCreate(g.t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: fmt.Sprintf("v%d-%d", round, i), LvsName: new(store), SizeInMiB: inflated, ThinProvision: new(true)})
		require.NoError(g.t, err)
		g.numbers(v, uint64(1+i*1000), true)
		_, err = g.rpc.BdevLvolSnapshot(g.t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: v, SnapshotName: fmt.Sprintf("s%d-%d", round, i)})
		require.NoError(g.t, err)
		volumes = append(volumes, v)
	}
	return volumes
}

// together calls the function call for all volumes concurrently.
func together(t *testing.T, volumes []string, call func(volume string) error) {
	t.Helper()
	var all sync.WaitGroup
	for _, v := range volumes {
		all.Go(func() { assert.NoError(t, call(v)) })
	}
	all.Wait()
}

// Without protection, the concurrent inflation of volumes in one lvstore loses data: SPDK reports
// success, but the volumes lack clusters of their snapshots. The target crashes when a host reads
// the clusters that bdev_lvol_inflate has skipped. The tests of the protection are meaningful only
// as long as unprotected inflations lose data.
func TestUnprotectedInflationsLoseData(t *testing.T) {
	free := func(g *target) uint64 {
		stores, err := g.rpc.BdevLvolGetLvstores(t.Context(), spdkrpc.BdevLvolGetLvstoresParams{})
		require.NoError(t, err)
		return stores[0].FreeClusters
	}
	t.Run("bdev_lvol_inflate", func(t *testing.T) {
		g := newTarget(t)
		volumes := g.sources(0, 2)
		before := free(g)
		together(t, volumes, func(v string) error {
			return g.rpc.BdevLvolInflate(t.Context(), spdkrpc.BdevLvolInflateParams{Name: v})
		})
		copied := before - free(g)
		t.Logf("%d of %d clusters were copied", copied, 2*inflated)
		assert.Less(t, copied, uint64(2*inflated), "this release may have fixed it")
	})
	t.Run("bdev_lvol_decouple_parent", func(t *testing.T) {
		g := newTarget(t)
		volumes := g.sources(0, 2)
		together(t, volumes, func(v string) error {
			return g.rpc.BdevLvolDecoupleParent(t.Context(), spdkrpc.BdevLvolDecoupleParentParams{Name: v})
		})
		lost := g.numbers(volumes[0], 1, false) + g.numbers(volumes[1], 1001, false)
		t.Logf("%d of %d clusters were lost", lost, 2*inflated)
		assert.NotZero(t, lost, "this release may have fixed it")
	})
}

// Concurrent inflations through the proxy lose no data.
func TestConcurrentInflationsLoseNoData(t *testing.T) {
	w := newEnvironment(newTarget(t))
	for round, method := range []string{"bdev_lvol_inflate", "bdev_lvol_decouple_parent"} {
		volumes := w.sources(round, 3)
		together(t, volumes, func(v string) error {
			return w.proxy.call(t.Context(), method, map[string]any{"name": v}, nil)
		})
		for i, v := range volumes {
			assert.Zero(t, w.numbers(v, uint64(1+i*1000), false), method)
		}
	}
}
