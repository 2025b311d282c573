//go:build kernel

package kernel

import (
	"fmt"
	"testing"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// TestHealedMirrorLosesNoWrites lets two storage servers fail and return while a node writes to a
// volume that has a replica on each of them. All acknowledged writes must be on both replicas at
// the end, and the replicas must be equal. The servers are exports of the guest's own kernel whose
// network is cut, or two real SPDK targets that are killed and paused.
func TestHealedMirrorLosesNoWrites(t *testing.T) {
	t.Run("own", func(t *testing.T) {
		m := NewMachine(t)
		t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
		m.Run(control.Healed, control.Own)
	})
	t.Run("SPDK", func(t *testing.T) {
		servers := replicaServers(t, control.ReplicaA, control.ReplicaB)
		m := NewMachine(t)
		m.Target = doReplicas(servers)
		t.Cleanup(func() { fmt.Fprintf(t.Output(), "\n%s", m.Table()) })
		m.Run(control.Healed, control.SPDK)
	})
}
