package exports

import (
	"context"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// checkExclusive makes the last step of p read back the admitted hosts. The step fails if another
// host is admitted, unless the request allows sharing the volume. Commands that plan concurrently
// do not see the hosts that the other commands are about to add. However, each command reads back
// the hosts after adding its own, so at least one of the commands sees the other's host.
func (t target) checkExclusive(p *Plan, r Request) {
	if r.Shared {
		return
	}
	p.last().check = func(ctx context.Context) error {
		subsystems, err := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &p.NQN})
		switch {
		case err != nil:
			return fmt.Errorf("cannot check that no other host is admitted to volume %s: %w", p.Volume, err)
		case len(subsystems) != 1:
			return fmt.Errorf("another user concurrently deleted %s", p.NQN)
		}
		sub := &subsystems[0]
		other := slices.IndexFunc(sub.Hosts, func(h spdkrpc.NVMfSubsystemHost) bool { return !slices.Contains(r.Hosts, h.NQN) })
		var admitted string
		switch {
		case sub.AllowAnyHost:
			admitted = "every host"
		case other >= 0:
			admitted = "host " + sub.Hosts[other].NQN
		default:
			return nil
		}
		return fmt.Errorf("another command concurrently admitted %s to volume %s: two hosts that write at the same time destroy any file system except a cluster file system. This command therefore withdraws its own hosts, and the other one may do the same. Check which hosts are admitted (spdk-proxy exports), then repeat the command, or share the volume (--shared)",
			admitted, p.Volume)
	}
}

// ownRemoval returns the step that removes a host admitted by this plan. The step succeeds even if
// the host is not admitted, because a call with an unknown outcome may have had no effect.
func (t target) ownRemoval(nqn, host string) *Step {
	s := t.removal(nqn, host)
	remove := s.do
	s.do = func(ctx context.Context) error {
		err := remove(ctx)
		if err == nil || gone(err) || mayBeDone(err) {
			return err
		}
		now, unread := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
		if unread != nil || slices.ContainsFunc(now, func(sub spdkrpc.NVMfSubsystem) bool { return hostIn(&sub, host) != nil }) {
			return err
		}
		return nil
	}
	return s
}
