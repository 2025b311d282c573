package snapshot

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/snapshot/initiator"
)

// A subject is a volume that is written and snapshotted.
type subject struct {
	writer
	kind   string
	volume *csi.Volume // nil if it was made without the driver
	bdev   string
	kept   []taken
	// all has every snapshot kept: what is given back would not be zeroed.
	all bool
}

// taken is a snapshot, with what was acknowledged before and begun after it was taken.
type taken struct {
	id              string
	atLeast, atMost uint64
}

// Snapshots by CSI of volumes under writes: the store's metadata stays, every snapshot is what the volume was at one
// moment, no error reaches the writer, and all of it is there after the target was killed.
func TestSnapshotsOfVolumesUnderWrites(t *testing.T) {
	w := newWorld(newTarget(t))
	var subjects []*subject
	for i, kind := range w.kinds() {
		s := w.newSubject(kind, kind)
		s.writer = startWriter(t, w.publish(s.volume, node), uint64(i+1))
		subjects = append(subjects, s)
	}
	w.snapshots(subjects)
}

// The same by the proxy's method alone, without the driver.
func TestSnapshotsByTheProxyOfVolumesUnderWrites(t *testing.T) {
	for _, kind := range []string{"thin", "thick", "clone"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(newTarget(t))
			s := &subject{kind: kind, bdev: w.makeVolume(kind), all: !slices.Contains(w.kinds(), kind)}
			nqn, address := w.share(s.bdev)
			s.writer = startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, 1)
			w.snapshots([]*subject{s})
		})
	}
}

// kinds are those that the driver makes: before v24.05 SPDK does not record how to clear a clone, and the driver makes none.
func (w *world) kinds() []string {
	release, err := w.rpc.Release(w.t.Context())
	require.NoError(w.t, err)
	if release.Before(rpcschema.MustRelease("v24.05")) {
		return []string{"thin", "thick"}
	}
	return []string{"thin", "thick", "clone"}
}

// newSubject makes a volume by the driver.
func (w *world) newSubject(kind, name string) *subject {
	w.t.Helper()
	v := w.create("pvc-"+name, kind)
	return &subject{kind: kind, volume: v, bdev: uuid(v.VolumeId)}
}

// snapshots takes snapshots of all subjects in turn, and looks after each, and at the end, whether all is well.
func (w *world) snapshots(subjects []*subject) {
	t := w.t
	for _, s := range subjects {
		s.progress(50)
	}
	page, states := w.firstPage(), w.anaStates()
	var stalls, calls []time.Duration
	rounds := *rounds
	if subjects[0].all {
		rounds = min(rounds, 60) // as deep as a chain may be
	}
	for round := range rounds {
		s := subjects[round%len(subjects)]
		s.longest()
		began := time.Now()
		w.take(s, fmt.Sprint("snapshot-", round))
		calls = append(calls, time.Since(began))
		s.progress(5)
		stalls = append(stalls, s.longest())
		require.True(t, page == w.firstPage(), "round %d: the store's first metadata page was overwritten", round)
		require.Equal(t, states, w.anaStates(), "round %d: the paths are not as they were", round)
		if len(s.kept) > keep && !s.all {
			if round%25 == 0 {
				w.verifyTaken(s, s.kept[0])
			}
			w.remove(s, s.kept[0])
			s.kept = s.kept[1:]
		}
	}
	for _, s := range subjects {
		s.stop()
	}
	t.Logf("%d snapshots; CreateSnapshot took %v (median) to %v, the longest write around it %v (median) to %v",
		rounds, quantile(calls, 0.5), quantile(calls, 1), quantile(stalls, 0.5), quantile(stalls, 1))
	w.kill()
	w.start()
	require.True(t, w.loads(), "the store does not load")
	for _, s := range subjects {
		for _, snapshot := range s.kept {
			w.verifyTaken(s, snapshot)
		}
		last := w.verify(s.bdev, s.writes(), s.acked(), s.begun())
		t.Logf("%s: %d snapshots and the volume verified, %d writes", s.kind, len(s.kept), last)
	}
}

// take takes a snapshot, as often as an external-snapshotter would try.
func (w *world) take(s *subject, name string) {
	w.t.Helper()
	atLeast := s.acked()
	id := ""
	require.Eventually(w.t, func() bool {
		ctx, cancel := context.WithTimeout(w.t.Context(), long)
		defer cancel()
		var err error
		if id, err = w.tryToTake(ctx, s, name); err != nil {
			w.t.Logf("%s: %v", name, err)
		}
		return err == nil
	}, long, 50*time.Millisecond)
	s.kept = append(s.kept, taken{id, atLeast, s.begun()})
}

func (w *world) tryToTake(ctx context.Context, s *subject, name string) (id string, err error) {
	if s.volume != nil {
		made, err := w.controller.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: s.volume.VolumeId})
		return made.GetSnapshot().GetSnapshotId(), err
	}
	var made []spdkrpc.ProxySnapshot
	err = w.proxy.call(ctx, "spdkgate_lvol_snapshot", spdkrpc.SpdkgateLvolSnapshotParams{Snapshots: []spdkrpc.ProxySnapshotRequest{{LvolName: s.bdev, SnapshotName: name}}}, &made)
	if err != nil {
		return "", err
	}
	if len(made) != 1 || !made[0].Frozen {
		return "", fmt.Errorf("it was not frozen: %v", made)
	}
	return made[0].UUID, nil
}

func (w *world) remove(s *subject, snapshot taken) {
	w.t.Helper()
	if s.volume == nil {
		require.NoError(w.t, w.proxy.call(w.t.Context(), "bdev_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: snapshot.id}, nil))
		return
	}
	_, err := w.controller.DeleteSnapshot(w.t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.id})
	require.NoError(w.t, err)
}

func (w *world) verifyTaken(s *subject, snapshot taken) {
	w.t.Helper()
	id := snapshot.id
	if s.volume != nil {
		id = uuid(id)
	}
	w.verify(id, s.writes(), snapshot.atLeast, snapshot.atMost)
}

// anaStates are those of all paths to the driver's subsystems.
func (w *world) anaStates() map[string][]string {
	w.t.Helper()
	subsystems, err := w.rpc.NVMfGetSubsystems(w.t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(w.t, err)
	states := map[string][]string{}
	for _, sub := range subsystems {
		if sub.Subtype != "NVMe" {
			continue
		}
		listeners, err := w.rpc.NVMfSubsystemGetListeners(w.t.Context(), spdkrpc.NVMfSubsystemGetListenersParams{NQN: sub.NQN})
		require.NoError(w.t, err)
		for _, l := range listeners {
			states[sub.NQN] = append(states[sub.NQN], fmt.Sprintf("%s %s %v", l.Address.Traddr, l.Address.Trsvcid, l.ANAStates))
		}
	}
	assert.NotEmpty(w.t, states)
	return states
}
