//go:build kernel

package kernel

import (
	"fmt"
	"testing"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// TestAuthentication stages volumes that require authentication, through CSI calls on a real
// kernel, with the right keys, with wrong keys and without keys. It also changes the keys during
// I/O.
func TestAuthentication(t *testing.T) {
	for method, targetType := range map[string]string{"dhchap": "nvme-tcp", "chap": "iscsi"} {
		t.Run(method, func(t *testing.T) {
			socket := realtarget.Socket(t)
			m := NewMachine(t)
			if method == "dhchap" && !m.kit.authenticates() {
				t.Skipf("kernel %s has no NVMe in-band authentication: set %s to a package of a kernel that has it", m.kit.kernel, KernelVariable)
			}
			m.Target = newCSITarget(t, socket, targetType, "").do
			t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
			m.Run(control.Authenticated, control.SPDK, control.ParamPhase+"="+method)
		})
	}
}
