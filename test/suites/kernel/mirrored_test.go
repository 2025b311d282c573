//go:build kernel

package kernel

import (
	"fmt"
	"testing"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// TestMirror tests package mirror with the kernel's dm-mirror. A replica fails during writes and
// returns, power is lost, and wrong replicas are rejected.
func TestMirror(t *testing.T) {
	t.Parallel()
	m := NewMachine(t)
	m.Run(control.Mirrored, control.Own)
	fmt.Fprintln(t.Output(), m.Table())
}
