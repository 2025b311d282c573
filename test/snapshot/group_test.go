package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/snapshot/initiator"
)

// A dependentWriter writes the numbers 1, 2, 3, … to volumes in turn, each only when the one before it is acknowledged. So
// whoever finds a number on one volume must find all smaller ones on the others.
type dependentWriter struct {
	devices []*initiator.Device
	done    atomic.Uint64
	mu      sync.Mutex
	longest time.Duration
	stop    func()
}

// dependentBlocks is how many blocks of a volume are written, in different clusters, so that writes allocate after each
// snapshot.
const dependentBlocks = 16

func placeOf(n uint64, volumes int) (volume int, at int64) {
	return int(n % uint64(volumes)), int64(n / uint64(volumes) % dependentBlocks * mib)
}

func (w *environment) startDependentWriter(targets []initiator.Target) *dependentWriter {
	t := w.t
	t.Helper()
	d := &dependentWriter{}
	for _, to := range targets {
		device, err := initiator.Connect(to)
		require.NoError(t, err)
		d.devices = append(d.devices, device)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		block := make([]byte, blocks.Size)
		for n := uint64(1); ctx.Err() == nil; n++ {
			binary.LittleEndian.PutUint64(block, n)
			i, at := placeOf(n, len(d.devices))
			began := time.Now()
			if _, err := d.devices[i].WriteAt(block, at); err != nil {
				assert.NoError(t, err, "a write failed")
				return
			}
			d.done.Store(n)
			d.mu.Lock()
			d.longest = max(d.longest, time.Since(began))
			d.mu.Unlock()
		}
	}()
	d.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		for _, device := range d.devices {
			_ = device.Close()
		}
	})
	t.Cleanup(d.stop)
	return d
}

func (d *dependentWriter) progress(t *testing.T, n uint64) {
	t.Helper()
	from := d.done.Load()
	require.Eventually(t, func() bool { return d.done.Load() >= from+n }, long, time.Millisecond, "the writer makes no progress")
}

// broken reports whether snapshots, one of each volume in order, lack a write on which a later one depends.
func (w *environment) broken(snapshots []string) bool {
	w.t.Helper()
	last := uint64(0)
	found := make([][]uint64, len(snapshots))
	for i, id := range snapshots {
		nqn, address := w.share(id)
		d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:reader"})
		require.NoError(w.t, err)
		block := make([]byte, blocks.Size)
		for b := range dependentBlocks {
			_, err := d.ReadAt(block, int64(b)*mib)
			require.NoError(w.t, err)
			n := binary.LittleEndian.Uint64(block)
			found[i] = append(found[i], n)
			last = max(last, n)
		}
		require.NoError(w.t, d.Close())
		w.unshare(nqn)
	}
	// The latest write of each place up to the last one found must be there.
	cycle := uint64(len(snapshots) * dependentBlocks)
	for n := last; n > 0 && n+cycle > last; n-- {
		i, at := placeOf(n, len(snapshots))
		if found[i][at/mib] != n {
			return true
		}
	}
	return false
}

// Group snapshots keep the order of dependent writes between volumes. Snapshots that are taken one after the other, without
// the freeze, do not: otherwise the first part would show nothing.
func TestGroupsKeepTheOrderOfWrites(t *testing.T) {
	for _, volumes := range []int{2, 8} {
		t.Run(fmt.Sprint(volumes, " volumes"), func(t *testing.T) {
			w := newEnvironment(newTarget(t))
			var sources []string
			var targets []initiator.Target
			for i := range volumes {
				v := w.create(fmt.Sprint("pvc-", i), "thin")
				sources, targets = append(sources, v.VolumeId), append(targets, w.publish(v, node))
			}
			d := w.startDependentWriter(targets)
			groups := min(*rounds, 20)
			page, states, brokenGroups := w.firstPage(), w.anaStates(), 0
			var stalls []time.Duration
			for round := range groups {
				d.progress(t, 50)
				d.mu.Lock()
				d.longest = 0
				d.mu.Unlock()
				group := w.takeGroup(fmt.Sprint("group-", round), sources)
				d.progress(t, uint64(volumes))
				d.mu.Lock()
				stalls = append(stalls, d.longest)
				d.mu.Unlock()
				require.True(t, page == w.firstPage(), "round %d: the store's first metadata page was overwritten", round)
				require.Equal(t, states, w.anaStates(), "round %d: the ANA states changed", round)
				if w.broken(inOrder(t, group, sources)) {
					brokenGroups++
				}
				var members []string
				for _, s := range group.Snapshots {
					members = append(members, s.SnapshotId)
				}
				_, err := w.controller.DeleteVolumeGroupSnapshot(t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GroupSnapshotId, SnapshotIds: members})
				require.NoError(t, err)
			}
			assert.Zero(t, brokenGroups, "of %d groups", groups)
			unfrozen := w.brokenWithoutFreeze(d, sources, 10)
			assert.Positive(t, unfrozen, "without the freeze, no order was broken: this test shows nothing")
			t.Logf("%d volumes: %d of %d groups broken; the writer waited %v (median) to %v; without the freeze %d of 10 broken",
				volumes, brokenGroups, groups, quantile(stalls, 0.5), quantile(stalls, 1), unfrozen)
		})
	}
}

func (w *environment) takeGroup(name string, sources []string) (group *csi.VolumeGroupSnapshot) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), long)
		defer cancel()
		made, err := w.controller.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: sources})
		if err != nil {
			w.t.Logf("%s: %v", name, err)
		}
		group = made.GetGroupSnapshot()
		return err == nil
	}, long, 50*time.Millisecond)
	return group
}

// inOrder returns the UUIDs of a group's snapshots in the order of their sources.
func inOrder(t *testing.T, group *csi.VolumeGroupSnapshot, sources []string) (ids []string) {
	t.Helper()
	require.Len(t, group.Snapshots, len(sources))
	for _, source := range sources {
		for _, s := range group.Snapshots {
			if s.SourceVolumeId == source {
				ids = append(ids, uuid(s.SnapshotId))
			}
		}
	}
	require.Len(t, ids, len(sources))
	return ids
}

// brokenWithoutFreeze takes snapshots by SPDK's own method, and counts how often the order is broken. It may destroy the
// store, which is not used afterwards.
func (w *environment) brokenWithoutFreeze(d *dependentWriter, sources []string, rounds int) (broken int) {
	w.t.Helper()
	for round := range rounds {
		d.progress(w.t, 50)
		var ids []string
		for i, source := range sources {
			id, err := w.rpc.BdevLvolSnapshot(w.t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: uuid(source), SnapshotName: fmt.Sprintf("unfrozen-%d-%d", round, i)})
			require.NoError(w.t, err)
			ids = append(ids, id)
		}
		if w.broken(ids) {
			broken++
		}
	}
	return broken
}
