package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/spdkgate/spdkgate/driver/hostauth"
)

// explain converts the kernel's error for a failed connection attempt into an error with a remedy.
// The kernel reports every refusal by a target as EIO, so explain sends a Connect command from user
// space to learn the reason.
func (n *nvme) explain(ctx context.Context, e Export, address string, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: not permitted to create NVMe controllers: run the node plugin privileged: %w", ErrUnsupported, err)
	case !errors.As(err, &errno):
		return fmt.Errorf("%w: write to /dev/nvme-fabrics: %w", ErrUnsupported, err)
	case unreachable(errno):
		return fmt.Errorf("%w: %s: check whether the target is running and listens there, and whether the network lets this node through (%w)", ErrUnreachable, e.portal(), err)
	}
	if e.Transport != TCP {
		return fmt.Errorf("%w: the target at %s refused the connection: check that the subsystem exists, allows host %s and listens on this address; see the node's kernel log for details (%w)",
			ErrRefused, e.portal(), n.hostFor(e).NQN, err)
	}
	switch reason, probeErr := probeConnect(ctx, address, e.Port, e.NQN, n.hostFor(e)); {
	case probeErr != nil:
		return fmt.Errorf("%w: %s: the kernel could not connect (%w), and the driver's own attempt failed too: %w", ErrUnreachable, e.portal(), err, probeErr)
	case reason == statusInvalidParam:
		return fmt.Errorf("%w: no %s at %s: check whether it was exported there, and whether the target lost its configuration in a restart (%w)", ErrNoSubsystem, e.NQN, e.portal(), err)
	case reason == statusInvalidHost:
		return fmt.Errorf("%w: %s does not allow host %s, or does not listen on %s: the volume must be published to this node first (%w)", ErrRefused, e.NQN, n.hostFor(e).NQN, e.portal(), err)
	case reason == mustAuthenticate && e.Authentication == hostauth.None:
		return fmt.Errorf("%w: %s requires this host to authenticate, but the volume has no keys: its StorageClass must set authentication: dhchap (%w)", ErrRefused, e.NQN, err)
	case reason == mustAuthenticate && e.BothAuthenticate:
		return fmt.Errorf("%w: %s admits host %s, but one side refused the other's key: compare dhchap-key and dhchap-ctrl-key in the node's Secret with those in the Secret that the controller used to publish the volume; the node's kernel log shows which key failed (%w)",
			ErrAuthentication, e.NQN, n.hostFor(e).NQN, err)
	case reason == mustAuthenticate:
		return fmt.Errorf("%w: the target refused this node's key for %s, as host %s: compare dhchap-key in the node's Secret with the key in the Secret that the controller used to publish the volume; if the Secret has changed since then, delete the pod that uses the volume (%w)",
			ErrAuthentication, e.NQN, n.hostFor(e).NQN, err)
	case reason == statusAuthRequired:
		return fmt.Errorf("%w: %s requires in-band authentication, but this volume has no keys (%w)", ErrRefused, e.NQN, err)
	case reason != statusSuccess:
		return fmt.Errorf("%w: %s responded to the connect with NVMe status %#x (%w)", ErrRefused, e.portal(), uint16(reason), err)
	}
	return fmt.Errorf("%w: the target accepts this host, but the kernel cannot connect: check whether the module nvme-%s is loaded, and see the node's kernel log (%w)", ErrUnsupported, e.Transport, err)
}

func unreachable(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ETIMEDOUT, syscall.EADDRNOTAVAIL:
		return true
	}
	return false
}
