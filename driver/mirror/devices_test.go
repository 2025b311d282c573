package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// lengths records the numbers of sectors of the tables that are loaded, by device.
type lengths struct {
	*world
	loaded map[string][]uint64
}

func (l lengths) load(name string, t target) error {
	l.loaded[name] = append(l.loaded[name], t.length)
	return l.world.load(name, t)
}

// Each table of the mirror, and of the device that replaces a missing replica, has the size of the
// volume. The log's table has the size of the log.
func TestTablesHaveTheSizesOfTheirDevices(t *testing.T) {
	w := newWorld(t)
	l := lengths{w, map[string][]uint64{}}
	m := w.plugin()
	m.kernel = l
	_, err := m.Start(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Drop(t.Context(), 1))
	require.NoError(t, m.Add(t.Context(), 1))
	w.synced = testSize / RegionBytes
	done, err := m.Complete(t.Context())
	require.True(t, done && err == nil)
	w.witness = w.witness.Publish("node2")
	w.witness.InSync = 0 // the fake accepts only releases of unlisted replicas
	require.NoError(t, m.Abandon(t.Context()))
	const volume, log = 131072, 7168 // 64 MiB and 3.5 MiB
	assert.Equal(t, map[string][]uint64{
		"spdkmirror-" + testID:     {volume, volume, volume, volume, volume},
		"spdkmirrorlost-" + testID: {volume},
		"spdkmirrorlog-" + testID:  {log},
	}, l.loaded)
}

// Only a running mirror of this publication has a status. Each call on any other device fails and
// changes nothing.
func TestOnlyTheRunningMirrorIsUsed(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"no device":            func(w *world) { delete(w.mapped, mirrorDevice) },
		"another publication":  func(w *world) { w.mapped[mirrorDevice].uuid = uuidPrefix + "9-" + testID },
		"of another program":   func(w *world) { w.mapped[mirrorDevice].uuid = "LVM-1" },
		"created, not started": func(w *world) { w.mapped[mirrorDevice].active = target{} },
	} {
		t.Run(name, func(t *testing.T) {
			w, m := started(t)
			change(w)
			_, err := m.Status(t.Context())
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "its mirror is not running")
			require.ErrorIs(t, m.Drop(t.Context(), 1), ErrRefused)
			require.ErrorIs(t, m.Retry(t.Context()), ErrRefused)
			require.ErrorIs(t, m.Add(t.Context(), 1), ErrRefused)
			_, err = m.Complete(t.Context())
			require.ErrorIs(t, err, ErrRefused)
			assert.Empty(t, w.after())
			assert.Equal(t, replica.SetOf(0, 1), w.witness.InSync)
		})
	}
}
