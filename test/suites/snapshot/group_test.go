package snapshot

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// An orderedWriter writes to volumes in turn, as blocks.WriteInTurn does.
type orderedWriter interface {
	progress(n uint64)      // waits until n more writes have been acknowledged
	longest() time.Duration // the longest write since the last call of longest
}

// A dependentWriter writes with package initiator.
type dependentWriter struct {
	t       *testing.T
	devices []*initiator.Device
	done    atomic.Uint64
	mu      sync.Mutex
	slowest time.Duration
	stop    func()
}

func startDependentWriter(t *testing.T, targets []initiator.Target) *dependentWriter {
	t.Helper()
	d := &dependentWriter{t: t}
	var devices []io.WriterAt
	for _, to := range targets {
		device, err := initiator.Connect(to)
		require.NoError(t, err)
		d.devices, devices = append(d.devices, device), append(devices, device)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		assert.NoError(t, blocks.WriteInTurn(ctx, devices, func(n uint64, took time.Duration) {
			d.done.Store(n)
			d.mu.Lock()
			d.slowest = max(d.slowest, took)
			d.mu.Unlock()
		}))
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

func (d *dependentWriter) progress(n uint64) {
	d.t.Helper()
	from := d.done.Load()
	require.Eventually(d.t, func() bool { return d.done.Load() >= from+n }, long, time.Millisecond, "the writer makes no progress")
}

func (d *dependentWriter) longest() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	longest := d.slowest
	d.slowest = 0
	return longest
}

// A snapshotAt is a snapshot on a target.
type snapshotAt struct {
	*target
	uuid string
}

// snapshotsAt adds the target to each snapshot.
func (g *target) snapshotsAt(uuids []string) (all []snapshotAt) {
	for _, id := range uuids {
		all = append(all, snapshotAt{g, id})
	}
	return all
}

// broken reports whether snapshots, one for each volume in order, lack a write that a later write
// depends on.
func broken(t *testing.T, snapshots []snapshotAt) bool {
	t.Helper()
	var copies []io.ReaderAt
	for _, s := range snapshots {
		nqn, address := s.share(s.uuid)
		defer s.unshare(nqn)
		d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:reader"})
		require.NoError(t, err)
		defer func() { assert.NoError(t, d.Close()) }()
		copies = append(copies, d)
	}
	ordered, err := blocks.InOrder(copies)
	require.NoError(t, err)
	return !ordered
}

// Group snapshots preserve the order of dependent writes across volumes. Snapshots that are taken
// one after another without the freeze do not, which proves that the test can detect a broken
// order.
func TestGroupSnapshotsPreserveWriteOrder(t *testing.T) {
	for _, volumes := range []int{2, 8} {
		t.Run(fmt.Sprint(volumes, " volumes"), func(t *testing.T) {
			w := newEnvironment(newTarget(t))
			var sources []string
			var targets []initiator.Target
			for i := range volumes {
				v := w.create(fmt.Sprint("pvc-", i), "thin")
				sources, targets = append(sources, v.VolumeId), append(targets, w.publish(v, node))
			}
			d := startDependentWriter(t, targets)
			groups := min(*rounds, 20)
			page, states, brokenGroups := w.firstPage(), w.anaStates(), 0
			var stalls []time.Duration
			for round := range groups {
				d.progress(50)
				d.longest()
				group := w.takeGroup(fmt.Sprint("group-", round), sources)
				d.progress(uint64(volumes))
				stalls = append(stalls, d.longest())
				require.True(t, page == w.firstPage(), "round %d: the store's first metadata page was overwritten", round)
				require.Equal(t, states, w.anaStates(), "round %d: the ANA states changed", round)
				if broken(t, w.snapshotsAt(inOrder(t, group, sources))) {
					brokenGroups++
				}
				w.deleteGroup(group)
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

func (w *environment) deleteGroup(group *csi.VolumeGroupSnapshot) {
	w.t.Helper()
	var members []string
	for _, s := range group.Snapshots {
		members = append(members, s.SnapshotId)
	}
	_, err := w.controller.DeleteVolumeGroupSnapshot(w.t.Context(), &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GroupSnapshotId, SnapshotIds: members})
	require.NoError(w.t, err)
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

// brokenWithoutFreeze takes snapshots with SPDK's own method, and counts how often the order is
// broken. Snapshots without the freeze may destroy the lvstore, which is not used afterwards.
func (w *environment) brokenWithoutFreeze(d *dependentWriter, sources []string, rounds int) (found int) {
	w.t.Helper()
	for round := range rounds {
		d.progress(50)
		var ids []string
		for i, source := range sources {
			id, err := w.rpc.BdevLvolSnapshot(w.t.Context(), spdkrpc.BdevLvolSnapshotParams{LvolName: uuid(source), SnapshotName: fmt.Sprintf("unfrozen-%d-%d", round, i)})
			require.NoError(w.t, err)
			ids = append(ids, id)
		}
		if broken(w.t, w.snapshotsAt(ids)) {
			found++
		}
	}
	return found
}
