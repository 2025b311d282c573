//go:build kernel

package kernel

import (
	"testing"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// TestEncryptedVolumes makes CSI calls for volumes that the node encrypts, with file systems and as
// raw block volumes. It grows and clones them, uses wrong and changed passphrases, and kills a
// plugin while the plugin is encrypting a volume.
func TestEncryptedVolumes(t *testing.T) {
	t.Parallel()
	for _, own := range []struct{ name, target string }{{"own target", control.Own}, {"own target, iSCSI", control.OwnISCSI}} {
		t.Run(own.name, func(t *testing.T) {
			if own.target != control.Own && !*all {
				t.Skip("takes long: only with --all")
			}
			t.Parallel()
			runNode(t, NewMachine(t), control.Encrypted, own.target)
		})
	}
	t.Run("SPDK", func(t *testing.T) {
		realTarget.Lock()
		t.Cleanup(realTarget.Unlock)
		c := newCSITarget(t, realtarget.Socket(t), "nvme-tcp", "")
		if c.old {
			t.Skip("this release has no larger clones")
		}
		m := NewMachine(t)
		m.Target = c.do
		runNode(t, m, control.Encrypted, control.SPDK)
	})
}
