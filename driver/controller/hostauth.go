package controller

import (
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

// requiredKeys returns the keys that the node must authenticate with, or nil if the volume context
// does not require authentication.
func requiredKeys(req *csi.ControllerPublishVolumeRequest) (*hostauth.Keys, error) {
	method, err := hostauth.ParseMethod(req.GetVolumeContext()[hostauth.KeyMethod])
	if err != nil {
		return nil, fmt.Errorf("%w: volume_context: %w", request.ErrInvalid, err)
	}
	return hostauth.Read(method, req.GetSecrets(), publishSecret)
}

// givenKeys returns the keys in the secrets of a ControllerUnpublishVolume request, or nil if there
// are none. The request does not show whether the volume requires authentication, and an
// interrupted call may have stored keys on the target.
func givenKeys(method hostauth.Method, secrets map[string]string) *hostauth.Keys {
	k, err := hostauth.Read(method, secrets, publishSecret)
	if err != nil {
		return nil
	}
	return k
}

// checkAuthenticates fails with [export.ErrNoAuthentication] if nodes cannot authenticate to a
// target as a class requires.
func (t *targets) checkAuthenticates(name string, wanted class.Authentication) error {
	c, err := t.config(name)
	if err != nil || wanted == class.NoAuthentication {
		return err
	}
	if c.TargetType == config.TargetLoop {
		return fmt.Errorf("%w: target %s is simulated", export.ErrNoAuthentication, name)
	}
	return t.byName[name].CheckAuthenticates(hostauth.Method(wanted))
}
