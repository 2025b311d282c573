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
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// A subject is a volume that is written to while its snapshots are taken.
type subject struct {
	writer
	kind   string
	volume *csi.Volume // nil if it was created without the driver
	bdev   string
	kept   []taken
	// all keeps every snapshot, because this SPDK release would not zero the clusters that a
	// deleted snapshot frees.
	all bool
}

// A taken is a snapshot. The writes up to atLeast were acknowledged before the snapshot was taken,
// and the writes after atMost began later.
type taken struct {
	id              string
	atLeast, atMost uint64
}

// The test takes CSI snapshots of volumes that are being written to. The first metadata page must
// remain unchanged, every snapshot must contain the volume's data at one moment, and no write may
// fail. The data must still be intact after the target has been killed and restarted.
func TestSnapshotsOfVolumesUnderWritesLoseNoData(t *testing.T) {
	w := newEnvironment(newTarget(t))
	var subjects []*subject
	for i, kind := range w.kinds() {
		s := w.newSubject(kind, kind)
		s.writer = startWriter(t, w.publish(s.volume, node), uint64(i+1))
		subjects = append(subjects, s)
	}
	w.snapshots(subjects)
}

// This test is like TestSnapshotsOfVolumesUnderWritesLoseNoData, except that it calls the proxy's
// method without the driver.
func TestProxySnapshotsOfVolumesUnderWritesLoseNoData(t *testing.T) {
	for _, kind := range []string{"thin", "thick", "clone"} {
		t.Run(kind, func(t *testing.T) {
			w := newEnvironment(newTarget(t))
			s := &subject{kind: kind, bdev: w.makeVolume(kind), all: !slices.Contains(w.kinds(), kind)}
			nqn, address := w.share(s.bdev)
			s.writer = startWriter(t, initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:writer"}, 1)
			w.snapshots([]*subject{s})
		})
	}
}

// kinds returns the kinds of volumes that the driver creates. Before v24.05, it does not create
// clones, because SPDK does not record how to clear them.
func (w *environment) kinds() []string {
	release, err := w.rpc.Release(w.t.Context())
	require.NoError(w.t, err)
	if release.Before(rpcschema.MustRelease("v24.05")) {
		return []string{"thin", "thick"}
	}
	return []string{"thin", "thick", "clone"}
}

// newSubject creates a volume with the driver.
func (w *environment) newSubject(kind, name string) *subject {
	w.t.Helper()
	v := w.create("pvc-"+name, kind)
	return &subject{kind: kind, volume: v, bdev: uuid(v.VolumeId)}
}

// snapshots takes snapshots of all subjects in turn. It checks the store after each snapshot, and
// all data at the end.
func (w *environment) snapshots(subjects []*subject) {
	t := w.t
	for _, s := range subjects {
		s.progress(50)
	}
	page, states := w.firstPage(), w.anaStates()
	var stalls, calls []time.Duration
	rounds := *rounds
	if subjects[0].all {
		rounds = min(rounds, 60) // the longest chain of snapshots
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
		require.Equal(t, states, w.anaStates(), "round %d: the ANA states changed", round)
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

// take takes a snapshot. It retries after an error, as the external-snapshotter does.
func (w *environment) take(s *subject, name string) {
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

func (w *environment) tryToTake(ctx context.Context, s *subject, name string) (id string, err error) {
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
		return "", fmt.Errorf("the volume was not frozen: %v", made)
	}
	return made[0].UUID, nil
}

func (w *environment) remove(s *subject, snapshot taken) {
	w.t.Helper()
	if s.volume == nil {
		require.NoError(w.t, w.proxy.call(w.t.Context(), "bdev_lvol_delete", spdkrpc.BdevLvolDeleteParams{Name: snapshot.id}, nil))
		return
	}
	_, err := w.controller.DeleteSnapshot(w.t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.id})
	require.NoError(w.t, err)
}

func (w *environment) verifyTaken(s *subject, snapshot taken) {
	w.t.Helper()
	id := snapshot.id
	if s.volume != nil {
		id = uuid(id)
	}
	w.verify(id, s.writes(), snapshot.atLeast, snapshot.atMost)
}

// anaStates returns the ANA states of all listeners, by NQN.
func (w *environment) anaStates() map[string][]string {
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
