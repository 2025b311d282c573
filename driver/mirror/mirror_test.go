package mirror

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/replica"
)

const (
	pairTable    = "core 2 2048 nosync 2 259:0 8192 259:1 8192 1 handle_errors"
	mirrorDevice = "spdkmirror-" + testID
)

// started returns a world in which a new volume has been started with both replicas.
func started(t *testing.T) (*world, *Mirror) {
	w := newWorld(t)
	m := w.plugin()
	d, err := m.Start(t.Context())
	require.NoError(t, err)
	require.Equal(t, replica.Start, d.Action)
	require.Equal(t, pairTable, w.table())
	w.after()
	return w, m
}

// degraded returns a world in which replica B has been dropped and is reachable again.
func degraded(t *testing.T) (*world, *Mirror) {
	w, m := started(t)
	require.NoError(t, m.Drop(t.Context(), 1))
	w.after()
	return w, m
}

func TestNewVolumeIsCreatedAndStarted(t *testing.T) {
	w := newWorld(t)
	d, err := w.plugin().Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, replica.Decision{Action: replica.Start, InSync: both}, d)
	assert.Equal(t, pairTable, w.table())
	assert.Equal(t, []string{
		"superblock 0 at 0: inSync=[0 1] rebuild=0", "superblock 0 at 262144: inSync=[0 1] rebuild=0",
		"superblock 1 at 0: inSync=[0 1] rebuild=0", "superblock 1 at 262144: inSync=[0 1] rebuild=0",
		"witness inSync=[0 1] held=[] logged=[] clean=true",
		"witness inSync=[0 1] held=[0 1] logged=[] clean=false",
	}, w.after()[:6])
	s, state := w.superblock(1)
	assert.Equal(t, replica.Ours, state)
	assert.Equal(t, superblock{replica.Superblock{Epoch: 2, InSync: both}, testID, 1, "uuid-b", testSize, RegionBytes, 2, 2}, s)
}

// Drop changes the witness first. It records that the log covers the dropped replica only after the
// writes of the old table have returned.
func TestDropUpdatesTheWitnessBeforeTheTable(t *testing.T) {
	w, m := started(t)
	require.NoError(t, m.Drop(t.Context(), 1))
	assert.Equal(t, []string{
		"witness inSync=[0] held=[0 1] logged=[] clean=false",
		"release uuid-b",
		"log of uuid-a: clear marks",
		"create spdkmirrorlog-" + testID, "load spdkmirrorlog-" + testID + ": linear 259:0 1024", "resume spdkmirrorlog-" + testID,
		"create spdkmirrorlost-" + testID, "load spdkmirrorlost-" + testID + ": error ", "resume spdkmirrorlost-" + testID,
		"load " + mirrorDevice + ": mirror disk 2 253:2 2048 2 259:0 8192 253:3 0 2 handle_errors keep_log",
		"suspend " + mirrorDevice, "resume " + mirrorDevice,
		"superblock 0 at 262144: inSync=[0] rebuild=0", "superblock 0 at 0: inSync=[0] rebuild=0",
		"witness inSync=[0] held=[0] logged=[] clean=false",
		"suspend " + mirrorDevice, "resume " + mirrorDevice,
		"witness inSync=[0] held=[0] logged=[1] clean=false",
	}, w.after())
	s, err := m.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Status{Device: "/dev/dm-1", Members: setA, Missing: setB, Synced: 0, Regions: 64}, s)
	assert.NoError(t, m.Drop(t.Context(), 1), "a repeated call changes nothing")
	assert.Empty(t, w.after())
	assert.ErrorIs(t, m.Drop(t.Context(), 0), ErrRefused, "the last replica")
	assert.Empty(t, w.after())
}

func TestDropFailsWhileTheWitnessIsUnavailable(t *testing.T) {
	w, m := started(t)
	w.noAPI = true
	assert.ErrorIs(t, m.Drop(t.Context(), 1), ErrWait)
	assert.Empty(t, w.after())
	assert.Equal(t, pairTable, w.table())
}

// If the log covers a replica that returns, only the regions marked in the log are copied, and the
// log moves to memory afterwards.
func TestReturningReplicaIsRebuiltByLog(t *testing.T) {
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	const table = "disk 2 253:2 2048 2 259:0 8192 259:1 8192 1 handle_errors"
	assert.Equal(t, []string{
		"witness inSync=[0] held=[0 1] logged=[1] clean=false",
		"superblock 1 at 262144: inSync=[0] rebuild=1", "superblock 1 at 0: inSync=[0] rebuild=1",
		"suspend " + mirrorDevice, "load " + mirrorDevice + ": mirror " + table, "resume " + mirrorDevice,
	}, w.after())
	assert.NoError(t, m.Add(t.Context(), 1), "a repeated call changes nothing")
	done, err := m.Complete(t.Context())
	require.NoError(t, err)
	assert.False(t, done)
	assert.Empty(t, w.after())
	s, err := m.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Status{Device: "/dev/dm-1", Members: setA, Rebuilding: setB, Regions: 64}, s)
	w.synced = 64
	done, err = m.Complete(t.Context())
	require.NoError(t, err)
	assert.True(t, done)
	assert.Equal(t, []string{
		"superblock 0 at 262144: inSync=[0 1] rebuild=0", "superblock 0 at 0: inSync=[0 1] rebuild=0",
		"superblock 1 at 262144: inSync=[0 1] rebuild=0", "superblock 1 at 0: inSync=[0 1] rebuild=0",
		"witness inSync=[0 1] held=[0 1] logged=[] clean=false",
		"load " + mirrorDevice + ": mirror " + pairTable, "suspend " + mirrorDevice, "resume " + mirrorDevice,
	}, w.after())
	done, err = m.Complete(t.Context())
	assert.True(t, done && err == nil)
}

// After a power loss, the mirror starts with one replica, and the other replica is rebuilt in full.
func TestReplicaIsRebuiltInFullAfterPowerLoss(t *testing.T) {
	w, _ := started(t)
	w.restart(true)
	m := w.plugin()
	d, err := m.Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, replica.Decision{Action: replica.Start, InSync: setA, InFull: setB}, d)
	require.NoError(t, m.Add(t.Context(), 1))
	assert.Contains(t, w.after(), "log of uuid-a: set marks")
	require.NoError(t, m.Retry(t.Context()))
	assert.NotContains(t, w.after(), "log of uuid-a: set marks", "a retry begins the rebuild again")
	require.NoError(t, m.Drop(t.Context(), 1))
	assert.Zero(t, w.witness.Logged, "a replica that was not in sync is not covered")
	require.NoError(t, m.Add(t.Context(), 1))
	s, _ := w.superblock(1)
	assert.Equal(t, replica.InFull, s.Rebuild)
}

func TestCleanStopIsRecorded(t *testing.T) {
	w, m := started(t)
	w.mapped[mirrorDevice].open = true
	assert.ErrorIs(t, m.Stop(t.Context()), ErrBusy)
	assert.False(t, w.witness.Clean)
	w.mapped[mirrorDevice].open = false
	w.noAPI = true
	assert.Error(t, m.Stop(t.Context()))
	assert.Empty(t, w.mapped)
	w.noAPI = false
	assert.NoError(t, m.Stop(t.Context()), "the same process remembers that the stop was clean")
	assert.True(t, w.witness.Clean)
	m = w.plugin()
	d, err := m.Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, replica.Decision{Action: replica.Start, InSync: both}, d)
}

// If the mirror has disappeared, the node may have lost power, so Stop does not record a clean
// stop.
func TestStopOfAMissingMirrorIsNotClean(t *testing.T) {
	w, _ := started(t)
	w.restart(true)
	require.NoError(t, w.plugin().Stop(t.Context()))
	assert.False(t, w.witness.Clean)
}

// Stop removes a mirror left behind by an earlier publication, but does not record a clean stop of
// the current publication.
func TestMirrorOfAnEarlierPublicationIsRemoved(t *testing.T) {
	w, _ := started(t)
	w.witness = w.witness.Publish("node2").Publish(node)
	m := w.plugin()
	m.volume.Writer.Generation = 3
	w.mapped[mirrorDevice].open = true
	_, err := m.Start(t.Context())
	assert.ErrorIs(t, err, ErrBusy)
	w.mapped[mirrorDevice].open = false
	require.NoError(t, m.Stop(t.Context()))
	assert.False(t, w.witness.Clean)
	d, err := m.Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, replica.Decision{Action: replica.Start, InSync: setA, InFull: setB}, d)
}

// After a reconnect, a replica may have a different device, so Retry looks up the devices again.
func TestRetryReopensChangedDevices(t *testing.T) {
	w, m := started(t)
	w.disk(1).dev = "259:7"
	require.NoError(t, m.Retry(t.Context()))
	assert.Equal(t, "core 2 2048 nosync 2 259:0 8192 259:7 8192 1 handle_errors", w.table())
	require.NoError(t, m.Drop(t.Context(), 0))
	w.disk(0).dev = "259:8"
	require.NoError(t, m.Add(t.Context(), 0))
	assert.Equal(t, "disk 2 253:2 2048 2 259:7 8192 259:8 8192 1 handle_errors", w.table())
}

// The log device is always mapped to the replica that contains the log.
func TestLogDeviceFollowsItsReplica(t *testing.T) {
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	w.synced = 64
	done, err := m.Complete(t.Context())
	require.True(t, done && err == nil)
	w.old = noWrites
	require.NoError(t, m.Drop(t.Context(), 0))
	assert.Equal(t, "259:1 1024", w.mapped["spdkmirrorlog-"+testID].active.params)
}

// A restarted plugin adopts a running mirror even if one of its replicas cannot be read, and can
// drop that replica.
func TestRestartedPluginDropsAFailedReplica(t *testing.T) {
	w, _ := started(t)
	w.disk(1).failing = unix.EIO
	m := w.plugin()
	_, err := m.Start(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Drop(t.Context(), 1))
	assert.Equal(t, setB, w.witness.Logged)
}

// If the read that is queued behind the waiting writes fails, the mirror continues, but the witness
// does not record that the log covers the dropped replica.
func TestLogIsNotTrustedAfterAnUncertainDrop(t *testing.T) {
	w, m := started(t)
	m.kernel = failingReads{w}
	assert.ErrorIs(t, m.Drop(t.Context(), 1), unix.EAGAIN)
	assert.Contains(t, w.table(), "keep_log")
	assert.False(t, w.mapped[mirrorDevice].suspended)
	assert.Zero(t, w.witness.Logged)
	assert.NoError(t, m.Add(t.Context(), 1))
	s, _ := w.superblock(1)
	assert.Equal(t, replica.InFull, s.Rebuild)
}

type failingReads struct{ *world }

func (failingReads) queueRead(string) (func(context.Context) error, error) { return nil, unix.EAGAIN }

// TestInterruptedOperationsAreCompleted creates a volume, drops a replica, adds it again and stops
// the mirror. It kills the plugin or the node before each step, and requires that the next plugin
// process completes the interrupted operation.
func TestInterruptedOperationsAreCompleted(t *testing.T) {
	for _, power := range []bool{false, true} {
		for lost := range replica.ID(2) {
			steps := 0
			for at := 1; ; at++ {
				w := newWorld(t)
				w.crashAt = at
				err := life(t.Context(), w, lost)
				if err == nil {
					break
				}
				require.ErrorIs(t, err, errCrash)
				w.restart(power)
				if !assert.NoError(t, recovered(t.Context(), w), "power %v, lost %d, step %d: after %v", power, lost, at, w.steps[at-1:]) {
					return
				}
				steps++
			}
			assert.Greater(t, steps, 40)
		}
	}
}

func life(ctx context.Context, w *world, lost replica.ID) error {
	m := w.plugin()
	if _, err := m.Start(ctx); err != nil {
		return err
	}
	if err := m.Drop(ctx, lost); err != nil {
		return err
	}
	return healed(ctx, w, m)
}

func recovered(ctx context.Context, w *world) error {
	m := w.plugin()
	if _, err := m.Start(ctx); err != nil {
		return err
	}
	return healed(ctx, w, m)
}

// healed adds a missing replica again, and stops the mirror.
func healed(ctx context.Context, w *world, m *Mirror) error {
	s, err := m.Status(ctx)
	if err != nil {
		return err
	}
	for _, id := range s.Missing.IDs() {
		if err := m.Add(ctx, id); err != nil {
			return err
		}
	}
	w.synced = testSize / RegionBytes
	if done, err := m.Complete(ctx); err != nil || !done {
		return errors.Join(err, fmt.Errorf("complete: %v", done))
	}
	if w.table() == "" || w.witness.InSync != both {
		return fmt.Errorf("table %q, witness %+v", w.table(), w.witness)
	}
	if err := m.Stop(ctx); err != nil {
		return err
	}
	if !w.witness.Clean || len(w.mapped) != 0 {
		return fmt.Errorf("witness %+v, devices %v", w.witness, w.mapped)
	}
	return nil
}

// The status lists the replicas with failed I/O. The device that replaces a missing replica always
// fails.
func TestStatusListsFailedReplicas(t *testing.T) {
	for health, want := range map[string]replica.Set{"AA": 0, "DA": setA, "AD": setB, "DD": both} {
		w, m := started(t)
		w.mapped[mirrorDevice].health = health
		s, err := m.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want, s.Failed, health)
		require.NoError(t, m.Drop(t.Context(), 1))
		w.mapped[mirrorDevice].health = health
		s, err = m.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, want&^setB, s.Failed, health)
	}
}
