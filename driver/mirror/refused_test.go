package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// Start changes nothing unless it is certain that starting the mirror is safe.
func TestStartFailsClosed(t *testing.T) {
	other := superblock{replica.Superblock{InSync: both}, "t0:other", 1, "uuid-b", testSize, RegionBytes, 1, 0}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, w *world)
		kind   error
		says   string
	}{
		{"no witness", func(_ *testing.T, w *world) { w.noAPI = true }, ErrWait, "no API server"},
		{"new, one replica missing", func(_ *testing.T, w *world) { w.disk(1).gone = true }, ErrWait, "replica 1"},
		{"new, other data at its beginning", func(_ *testing.T, w *world) { w.disk(1).put(1080, 0x53) }, ErrRefused, "replica 1 (the device contains data that is not a replica"},
		{"new, other data elsewhere in the head", func(_ *testing.T, w *world) { w.disk(1).put(HeadBytes-1, 1) }, ErrRefused, "from offset 3932160"},
		{"new, a read error", func(_ *testing.T, w *world) { w.disk(1).failing = unix.EIO }, ErrWait, "input/output error"},
		{"new, too small", func(_ *testing.T, w *world) { w.disk(1).length-- }, ErrWait, "but the volume needs"},
		{"new, a replica of another volume", func(t *testing.T, w *world) { put(t, w.disk(1), other) }, ErrRefused, `another volume, "t0:other"`},
		{"new, the other replica of this volume", func(t *testing.T, w *world) {
			s := other
			s.Volume, s.ID, s.UUID = testID, 0, "uuid-a"
			put(t, w.disk(1), s)
		}, ErrRefused, "a copy of replica 0 with the UUID uuid-a"},
		{"new, a clone of this replica", func(t *testing.T, w *world) {
			s := other
			s.Volume, s.UUID = testID, "uuid-of-the-source"
			put(t, w.disk(1), s)
		}, ErrRefused, "uuid-of-the-source"},
		{"new, another size", func(t *testing.T, w *world) {
			s := other
			s.Volume, s.Size = testID, testSize/2
			put(t, w.disk(1), s)
		}, ErrWait, "records a volume of 33554432 bytes"},
		{"the only current replica is missing", func(t *testing.T, w *world) {
			use(t, w, func(m *Mirror) { require.NoError(t, m.Drop(t.Context(), 1)) })
			w.disk(0).gone = true
		}, ErrWait, "replica 0"},
		{"the replicas accuse each other", func(t *testing.T, w *world) {
			use(t, w, func(*Mirror) {})
			for id, in := range []replica.Set{setA, setB} {
				s, _ := w.superblock(replica.ID(id))
				s.InSync = in
				put(t, w.disk(replica.ID(id)), s)
			}
		}, ErrRefused, "each replica records"},
		{"a listed replica is blank", func(t *testing.T, w *world) {
			use(t, w, func(*Mirror) {})
			clear(w.disk(0).parts[:])
		}, ErrRefused, "replica 0"},
		{"superblock with a later epoch", func(t *testing.T, w *world) {
			use(t, w, func(*Mirror) {})
			s, _ := w.superblock(0)
			s.Epoch = 9
			put(t, w.disk(0), s)
		}, ErrRefused, "later epoch"},
		{"three replicas", func(_ *testing.T, w *world) { w.witness.Replicas = replica.SetOf(0, 1, 2) }, ErrUnsupported, "3 replicas"},
		{"device name used by another program", func(_ *testing.T, w *world) {
			w.mapped[mirrorDevice] = &mapped{mapping: mapping{uuid: "LVM-1"}}
		}, ErrRefused, "LVM-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			test.change(t, w)
			w.after()
			present := len(w.mapped)
			_, err := w.plugin().Start(t.Context())
			assert.ErrorIs(t, err, test.kind)
			assert.ErrorContains(t, err, test.says)
			assert.Empty(t, w.after())
			assert.Len(t, w.mapped, present)
		})
	}
}

// use starts the mirror, calls do, and then simulates a power loss.
func use(t *testing.T, w *world, do func(*Mirror)) {
	m := w.plugin()
	_, err := m.Start(t.Context())
	require.NoError(t, err)
	do(m)
	w.restart(true)
}

func put(t *testing.T, d *memory, s superblock) {
	block, err := s.encode()
	require.NoError(t, err)
	for _, at := range superblockOffsets {
		d.put(at, block...)
	}
}

// Add does not change a replica that may contain the only copy of some data, or a device that is
// not a replica.
func TestAddRefusesReplicasWithUnclearContents(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"it claims that the other one failed": func(w *world) {
			s, _ := w.superblock(1)
			s.InSync = setB
			put(w.t, w.disk(1), s)
		},
		"it contains other data": func(w *world) { w.disk(1).put(0, 1); w.disk(1).put(256<<10, 1) },
		"it cannot be read":      func(w *world) { w.disk(1).failing = unix.EIO },
	} {
		t.Run(name, func(t *testing.T) {
			w, m := degraded(t)
			change(w)
			assert.ErrorIs(t, m.Add(t.Context(), 1), ErrRefused)
			assert.Empty(t, w.after())
		})
	}
	w, m := degraded(t)
	w.disk(1).gone = true
	assert.ErrorIs(t, m.Add(t.Context(), 1), ErrUnreachable)
	assert.ErrorIs(t, m.Add(t.Context(), 0), ErrRefused)
	assert.Empty(t, w.after())
}

// The package does not change a mirror if the package cannot have loaded its table.
func TestForeignTableIsRefused(t *testing.T) {
	w, m := started(t)
	for _, table := range []string{
		"core 2 1024 nosync 2 259:0 8192 259:1 8192 1 handle_errors", "core 2 2048 nosync 2 259:0 8192 259:1 8192",
		"core 2 2048 nosync 2 259:0 8192 259:0 8192 1 handle_errors", "core 2", "",
	} {
		w.mapped[mirrorDevice].active.params = table
		_, err := m.Start(t.Context())
		assert.ErrorIs(t, err, ErrRefused, table)
		assert.ErrorIs(t, m.Drop(t.Context(), 1), ErrRefused, table)
	}
	assert.Empty(t, w.after())
}

// A fenced node changes nothing, even if its mirror is still running.
func TestFencedNodeChangesNothing(t *testing.T) {
	w, m := degraded(t)
	w.witness = w.witness.Publish("node2")
	_, err := m.Start(t.Context())
	assert.ErrorIs(t, err, ErrRefused)
	assert.ErrorIs(t, m.Add(t.Context(), 1), ErrRefused)
	assert.ErrorIs(t, m.Retry(t.Context()), ErrRefused)
	assert.ErrorIs(t, m.Drop(t.Context(), 0), ErrRefused)
	_, err = m.Complete(t.Context())
	assert.ErrorIs(t, err, ErrRefused)
	assert.Empty(t, w.after())
	w.restart(true)
	_, err = w.plugin().Start(t.Context())
	assert.ErrorIs(t, err, ErrRefused)
	assert.Empty(t, w.after())
}

// A witness that was restored from a backup is neither changed nor copied to the replicas.
func TestRestoredWitnessIsNotChanged(t *testing.T) {
	w, m := degraded(t)
	w.witness.Epoch = 1
	_, err := w.plugin().Start(t.Context())
	assert.ErrorContains(t, err, "later epoch")
	assert.ErrorContains(t, m.Add(t.Context(), 1), "later epoch")
	w.witness.Epoch = 9
	require.NoError(t, m.Add(t.Context(), 1))
	w.synced = testSize / RegionBytes
	w.after()
	w.witness.Epoch = 1
	done, err := m.Complete(t.Context())
	assert.False(t, done)
	assert.ErrorContains(t, err, "later epoch")
	w, m = started(t)
	w.witness.Epoch = 1
	assert.ErrorContains(t, m.Drop(t.Context(), 1), "later epoch")
	assert.Empty(t, w.after())
}

// If the kernel reports an unknown status, the rebuild is not completed, and the error contains the
// status.
func TestUnknownStatusIsReported(t *testing.T) {
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	w.synced = testSize / RegionBytes
	w.after()
	m.kernel = unknownStatus{w}
	done, err := m.Complete(t.Context())
	require.ErrorContains(t, err, "unknown status of a mirror")
	assert.False(t, done)
	assert.Empty(t, w.after())
}

// A plugin that adopts a rebuild does not continue if the in-sync replicas in the witness differ
// from those in the mirror's table.
func TestContradictoryTableIsRejected(t *testing.T) {
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	w.witness.InSync, w.witness.Logged = setB, 0
	w.after()
	_, err := w.plugin().Start(t.Context())
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "contradicts the record")
	assert.Empty(t, w.after())
}

// A plugin that adopts a complete rebuild moves the log to memory, as the interrupted plugin would
// have done.
func TestCompleteRebuildIsFinishedAfterARestart(t *testing.T) {
	w, m := degraded(t)
	require.NoError(t, m.Add(t.Context(), 1))
	w.synced = testSize / RegionBytes
	w.after()
	w.crashAt = 6 // after four superblocks and the witness have been written
	_, err := m.Complete(t.Context())
	require.ErrorIs(t, err, errCrash)
	w.restart(false)
	w.after()
	_, err = w.plugin().Start(t.Context())
	require.NoError(t, err)
	assert.Equal(t, pairTable, w.table())
}

type unknownStatus struct{ *world }

func (u unknownStatus) find(name string) (mapping, bool, error) {
	m, found, err := u.world.find(name)
	m.status = "3 " + m.status
	return m, found, err
}
