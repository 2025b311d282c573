package connect

import (
	"fmt"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// WithKeys returns the export with the keys to authenticate with. Only Connect needs the keys.
func (e Export) WithKeys(k *hostauth.Keys) Export {
	e.keys = k
	return e
}

// CheckKeys fails with [ErrNoKeys] if the export lacks the keys that it requires.
func (e Export) CheckKeys() error {
	switch {
	case e.Authentication == hostauth.None:
		return nil
	case e.keys == nil || e.keys.Method != e.Authentication:
		return fmt.Errorf("%w: the volume requires authentication (%s), but this call has no secret with keys: set csi.storage.k8s.io/node-stage-secret-name and -namespace, and node-publish-secret-name and -namespace, in the StorageClass before the volume is created",
			ErrNoKeys, e.Authentication)
	case e.BothAuthenticate && !e.keys.Both():
		return fmt.Errorf("%w: the target must authenticate too, because the controller's secret contained a key for it, but the secret of this call contains none: use the same Secret for both", ErrNoKeys)
	}
	return nil
}

// authenticates maps each transport to its authentication method.
var authenticates = map[Transport]hostauth.Method{TCP: hostauth.DHCHAP, RDMA: hostauth.DHCHAP, ISCSI: hostauth.CHAP}

func (e *Export) parseAuthentication(m map[string]string) error {
	text := m[hostauth.KeyMethod]
	if e.Authentication = hostauth.Method(text); e.Authentication != hostauth.None && e.Authentication != authenticates[e.Transport] {
		return invalid(hostauth.KeyMethod, text, fmt.Sprintf("%s for NVMe-oF, or %s for iSCSI, and this volume's %s is %s", hostauth.DHCHAP, hostauth.CHAP, KeyTargetType, e.Transport))
	}
	e.BothAuthenticate = m[hostauth.KeyBoth] == "true"
	return nil
}
