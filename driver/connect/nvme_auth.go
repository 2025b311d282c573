package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/operation"
)

// The kernel authenticates with DH-HMAC-CHAP when it connects, and again with the same keys when it
// reconnects. The kernel stores the keys with the controller, so the driver does not store them on
// the node.

// keyOptions returns the options for an export's keys, to be appended to [fabricsOptions].
func keyOptions(e Export) string {
	if e.Authentication != hostauth.DHCHAP {
		return ""
	}
	options := ",dhchap_secret=" + e.keys.Host.Reveal()
	if e.keys.Both() {
		options += ",dhchap_ctrl_secret=" + e.keys.Target.Reveal()
	}
	return options
}

// checkAuthenticates fails with [ErrUnsupported] if the kernel reports that it does not support
// authentication. Kernels before 5.17 do not list the options that they accept; these kernels do
// not support authentication, and reject its options.
func (n *nvme) checkAuthenticates(e Export) error {
	if e.Authentication == hostauth.None {
		return nil
	}
	options, err := os.ReadFile(n.node.path("dev/nvme-fabrics"))
	if err == nil && len(options) > 0 && !strings.Contains(string(options), "dhchap_secret=") {
		return fmt.Errorf("%w: this node's kernel does not support NVMe in-band authentication: use a kernel with CONFIG_NVME_HOST_AUTH (CONFIG_NVME_AUTH before Linux 6.7)", ErrUnsupported)
	}
	return nil
}

// replaceKeys replaces the keys of existing controllers if they differ from the export's. The
// kernel then authenticates again with the new keys. If the export has no keys, replaceKeys changes
// nothing.
func (n *nvme) replaceKeys(e Export, existing []controller, step *operation.Step) error {
	if e.Authentication != hostauth.DHCHAP || e.keys == nil {
		return nil
	}
	if err := e.CheckKeys(); err != nil {
		return err
	}
	for _, c := range existing {
		// The kernel authenticates after each change. If both keys differ, the first attempt may
		// fail and the target may close the connection. The kernel then reconnects with both new
		// keys.
		for _, k := range []struct {
			attribute string
			secret    hostauth.Secret
		}{{"dhchap_ctrl_secret", e.keys.Target}, {"dhchap_secret", e.keys.Host}} {
			if k.secret.IsZero() || n.node.attribute("sys/class/nvme", c.name, k.attribute) == k.secret.Reveal() {
				continue
			}
			step.Doing("the kernel replaces a key of %s (write to its %s)", c.name, k.attribute)
			err := n.node.write(n.node.path("sys/class/nvme", c.name, k.attribute), k.secret.Reveal())
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: %s has no %s: disconnect the volume and stage it again", ErrUnsupported, c.name, k.attribute)
			}
			if err != nil {
				return fmt.Errorf("replace a key of controller %s: %w", c.name, err)
			}
		}
	}
	return nil
}
