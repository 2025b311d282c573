//go:build kernel

package kernel

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/kernel/control"
)

func TestNVMe(t *testing.T) {
	for _, multipath := range []string{"Y", "N"} {
		t.Run("own target, native multipath "+multipath, func(t *testing.T) {
			newMachine(t).run(control.NVMe, control.Own, "nvme_core.multipath="+multipath)
		})
	}
	t.Run("SPDK", func(t *testing.T) {
		m := newMachine(t)
		m.target = newSPDK(t).nvme
		m.run(control.NVMe, control.SPDK)
	})
}

func TestISCSI(t *testing.T) {
	t.Run("own target", func(t *testing.T) { newMachine(t).run(control.ISCSI, control.Own) })
	t.Run("SPDK", func(t *testing.T) {
		m := newMachine(t)
		m.target = newSPDK(t).iscsi
		m.run(control.ISCSI, control.SPDK)
	})
}

func newMachine(t *testing.T) *machine {
	if testing.Short() {
		t.Skip("boots a virtual machine: leave out -short")
	}
	k, err := openKit(t.Context(), t.Logf)
	require.NoError(t, err)
	return &machine{t: t, kit: k}
}

func newSPDK(t *testing.T) *spdk {
	path := os.Getenv("SPDK_SOCK")
	if path == "" {
		t.Skip("no real target: set SPDK_SOCK to the path of an spdk_tgt's socket")
	}
	return startSPDK(t, path)
}
