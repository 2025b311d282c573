package node

import (
	"errors"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// The names of StorageClass parameters that, with the suffixes -name and -namespace, make
// Kubernetes send a Secret with each call.
const (
	stageSecret   = "csi.storage.k8s.io/node-stage-secret"
	publishSecret = "csi.storage.k8s.io/node-publish-secret"
)

// withKeys returns e with the keys in the secrets of NodeStageVolume. It fails if the volume
// requires keys but the secrets contain none, so that the caller does not connect the volume.
func withKeys(e connect.Export, secrets map[string]string) (connect.Export, error) {
	keys, err := hostauth.Read(e.Authentication, secrets, stageSecret)
	return e.WithKeys(keys), err
}

// withKeysIfGiven returns e with the keys in the secrets of NodePublishVolume, if there are any.
// NodePublishVolume needs keys only if it must connect the volume again.
func withKeysIfGiven(e connect.Export, secrets map[string]string) (connect.Export, error) {
	keys, err := hostauth.Read(e.Authentication, secrets, publishSecret)
	if errors.Is(err, hostauth.ErrMissing) {
		return e, nil // connecting would fail with connect.ErrNoKeys
	}
	return e.WithKeys(keys), err
}
