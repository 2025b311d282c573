package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// explain turns what the kernel answered to a connect into an error that says what to do. The
// kernel reports every refusal of a target as EIO, so the target is asked again, from user space.
func (n *nvme) explain(ctx context.Context, e Export, address string, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: not allowed to make NVMe controllers: run the node plugin privileged: %w", ErrUnsupported, err)
	case !errors.As(err, &errno):
		return fmt.Errorf("%w: write to /dev/nvme-fabrics: %w", ErrUnsupported, err)
	case unreachable(errno):
		return fmt.Errorf("%w: %s: is the target running, does it listen there, does the network let this node through? (%w)", ErrUnreachable, e.portal(), err)
	}
	if e.Transport != TCP {
		return fmt.Errorf("%w: the target at %s turned the connection down: is the subsystem there, does it allow host %s and listen on that address? (the node's kernel log has the details: %w)",
			ErrRefused, e.portal(), n.hostFor(e).NQN, err)
	}
	switch reason, probeErr := askWhy(ctx, address, e.Port, e.NQN, n.hostFor(e)); {
	case probeErr != nil:
		return fmt.Errorf("%w: %s: the kernel could not connect (%w), and neither can we: %w", ErrUnreachable, e.portal(), err, probeErr)
	case reason == statusInvalidParam:
		return fmt.Errorf("%w: no %s at %s: was it exported there, or has the target lost its configuration in a restart? (%w)", ErrNoSubsystem, e.NQN, e.portal(), err)
	case reason == statusInvalidHost:
		return fmt.Errorf("%w: %s does not allow host %s, or does not listen on %s: the volume must be published to this node first (%w)", ErrRefused, e.NQN, n.hostFor(e).NQN, e.portal(), err)
	case reason == statusAuthRequired:
		return fmt.Errorf("%w: %s requires in-band authentication, for which this volume has no keys (%w)", ErrRefused, e.NQN, err)
	case reason != statusSuccess:
		return fmt.Errorf("%w: %s answered the connect with NVMe status %#x (%w)", ErrRefused, e.portal(), uint16(reason), err)
	}
	return fmt.Errorf("%w: the target accepts this host, the kernel does not connect: is the module nvme-%s there? The node's kernel log has the details (%w)", ErrUnsupported, e.Transport, err)
}

func unreachable(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.EHOSTDOWN, syscall.ENETUNREACH, syscall.ENETDOWN, syscall.ETIMEDOUT, syscall.EADDRNOTAVAIL:
		return true
	}
	return false
}
