//go:build kernel

package kernel

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

func TestNVMeConnectorWorksOnAKernel(t *testing.T) {
	for _, multipath := range []string{"Y", "N"} {
		t.Run("own target, native multipath "+multipath, func(t *testing.T) {
			NewMachine(t).Run(control.NVMe, control.Own, "nvme_core.multipath="+multipath)
		})
	}
	t.Run("SPDK", func(t *testing.T) {
		m := NewMachine(t)
		m.Target = newSPDK(t).nvme
		m.Run(control.NVMe, control.SPDK)
	})
}

func TestISCSIConnectorWorksOnAKernel(t *testing.T) {
	t.Run("own target", func(t *testing.T) { NewMachine(t).Run(control.ISCSI, control.Own) })
	t.Run("SPDK", func(t *testing.T) {
		m := NewMachine(t)
		m.Target = newSPDK(t).iscsi
		m.Run(control.ISCSI, control.SPDK)
	})
}

// TestClearingHidesDeletedData searches a thin volume that reuses the clusters of a deleted volume
// for the deleted data. Without clearing, the test finds this data, which proves that it reads the
// right clusters.
func TestClearingHidesDeletedData(t *testing.T) {
	const parts = control.OwnClusters * control.OwnBytes
	for mode, exposed := range map[class.Clear]int64{
		class.ClearZeroes: 0, class.ClearNone: control.OwnClusters*control.ClusterBytes - parts,
	} {
		t.Run(string(mode), func(t *testing.T) {
			socket := realtarget.Socket(t)
			var found *control.Found
			m := NewMachine(t)
			m.Target = newDriverTarget(t, socket, mode).do
			m.Found = func(f control.Found) { found = &f }
			m.Run(control.Deleted, control.SPDK)
			require.NotNil(t, found)
			assert.Equal(t, control.Found{Zero: control.DeletedBytes - parts - exposed, Own: parts, Foreign: exposed}, *found)
		})
	}
}

func newSPDK(t *testing.T) *spdk {
	return startSPDK(t, realtarget.Socket(t))
}
