package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/replica"
)

func TestLocalStatusNeedsNoAPIServerOrDisks(t *testing.T) {
	w, m := started(t)
	w.noAPI = true
	w.disk(0).gone, w.disk(1).gone = true, true
	got, err := m.Local()
	require.NoError(t, err)
	assert.Equal(t, Local{Device: w.mapped[mirrorDevice].path(), Complete: true}, got)
	for _, health := range []string{"AD", "RA", "DD"} {
		w.mapped[mirrorDevice].health = health
		got, err = m.Local()
		require.NoError(t, err)
		assert.True(t, got.Failed, health)
	}

	w, m = degraded(t)
	w.mapped[mirrorDevice].health = "AD"
	got, err = m.Local()
	require.NoError(t, err)
	assert.False(t, got.Complete)
	assert.False(t, got.Failed, "the device that stands for the missing replica fails all I/O")
	delete(w.mapped, mirrorDevice)
	_, err = m.Local()
	require.ErrorIs(t, err, ErrRefused)
}

// Abandon fails the I/O of a mirror only if the mirror's publication is over.
func TestAbandonRequiresAnEndedPublication(t *testing.T) {
	w, m := started(t)
	require.ErrorIs(t, m.Abandon(t.Context()), ErrRefused)
	w.noAPI = true
	require.Error(t, m.Abandon(t.Context()))
	w.noAPI = false
	assert.Empty(t, w.after())
	w.witness = w.witness.Publish("node2")
	_, err := m.Status(t.Context())
	var ended *DecisionError
	require.ErrorAs(t, err, &ended, "the healer must notice that the publication is over, even if no replica is connected")
	assert.Equal(t, replica.Fenced, ended.Decision.Reason)
	w.witness.InSync = 0 // the fake accepts only releases of unlisted replicas
	require.NoError(t, m.Abandon(t.Context()))
	assert.Equal(t, "error", w.mapped[mirrorDevice].active.kind)
	_, err = m.Local()
	require.ErrorIs(t, err, ErrRefused)
}

// A server that has just stopped responding still counts as connected, but commands fail. If a
// restarted plugin cannot read the superblock from such a server, it can still drop the replica;
// otherwise, all writes would wait.
func TestSilentServerIsDroppedByARestartedPlugin(t *testing.T) {
	for _, id := range []replica.ID{0, 1} {
		w, _ := started(t)
		m := w.plugin()
		w.disk(id).failing = failedCommand(0, unix.EINTR)
		_, err := m.Start(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Drop(t.Context(), id))
		assert.Equal(t, replica.SetOf(1-id), w.witness.InSync)
		require.ErrorIs(t, m.Add(t.Context(), id), ErrUnreachable)
		err = m.writeOne(t.Context(), id, replica.Superblock{Epoch: w.witness.Epoch, InSync: w.witness.InSync})
		require.ErrorIs(t, err, ErrUnreachable)
		assert.NotContains(t, err.Error(), "has changed")
	}
}

// If the mirror of an ended publication does not run any more, or another program has a device of
// its name, Abandon releases and changes nothing.
func TestAbandonChangesNothingWithoutAMirror(t *testing.T) {
	w, m := started(t)
	w.witness = w.witness.Publish("node2")
	w.witness.InSync = 0
	w.mapped[mirrorDevice].uuid = "LVM-other"
	w.after()
	require.ErrorIs(t, m.Abandon(t.Context()), ErrRefused)
	assert.Empty(t, w.after())
	delete(w.mapped, mirrorDevice)
	require.NoError(t, m.Abandon(t.Context()))
	assert.Empty(t, w.after())
}
