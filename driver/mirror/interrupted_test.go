package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// If a process ends while it changes the mirror's table, the next one resumes the device, or
// discards the table that is only loaded. Otherwise, all I/O would wait.
func TestInterruptedTableChangesAreFinished(t *testing.T) {
	for name, interrupt := range map[string]func(d *mapped){
		"suspended":                     func(d *mapped) { d.suspended = true },
		"loaded":                        func(d *mapped) { d.inactive = d.active },
		"suspended with the next table": func(d *mapped) { d.suspended, d.inactive = true, d.active },
	} {
		w, _ := started(t)
		d := w.mapped[mirrorDevice]
		interrupt(d)
		_, err := w.plugin().Start(t.Context())
		require.NoError(t, err, name)
		assert.False(t, d.suspended, name)
		assert.Empty(t, d.inactive, name)
		assert.Equal(t, pairTable, w.table(), name)
	}
}

// Both replicas may have failed unless the kernel reports otherwise. A log on a replica marks the
// writes that fail.
func TestBothReplicasCountAsFailedUnlessTheKernelReportsOtherwise(t *testing.T) {
	w, m := started(t)
	d := w.mapped[mirrorDevice]
	for health, want := range map[string]bool{"AA": false, "AD": false, "DA": false, "DD": true} {
		d.health = health
		assert.Equal(t, want, m.bothFailed(), health)
	}
	d.health = "D"
	assert.True(t, m.bothFailed(), "the status is unknown")
	d.health, d.active = "AA", target{"error", 1, ""}
	assert.True(t, m.bothFailed(), "the table is unknown")
	w.requests, w.failAt = 0, 1
	assert.True(t, m.bothFailed())

	w, m = degraded(t)
	w.mapped[mirrorDevice].health = "DD"
	assert.False(t, m.bothFailed(), "the log marks the writes")
}

// A rebuild is complete only if its replica is in the mirror and the kernel has copied all regions.
func TestRebuildOfAMissingReplicaIsNotComplete(t *testing.T) {
	w, m := degraded(t)
	for _, regions := range []int{0, testSize/RegionBytes - 1, testSize / RegionBytes} {
		w.synced = regions
		done, err := m.Complete(t.Context())
		require.NoError(t, err)
		assert.False(t, done)
		assert.Empty(t, w.after())
		assert.Equal(t, replica.SetOf(0), w.witness.InSync)
	}
}
