//go:build kernel

package kernel

import (
	"testing"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/kernel/control"
)

func TestNVMe(t *testing.T) {
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

func TestISCSI(t *testing.T) {
	t.Run("own target", func(t *testing.T) { NewMachine(t).Run(control.ISCSI, control.Own) })
	t.Run("SPDK", func(t *testing.T) {
		m := NewMachine(t)
		m.Target = newSPDK(t).iscsi
		m.Run(control.ISCSI, control.SPDK)
	})
}

func newSPDK(t *testing.T) *spdk {
	return startSPDK(t, realtarget.Socket(t))
}
