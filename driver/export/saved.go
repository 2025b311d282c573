package export

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/driver/readback"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If a call changes which hosts can reach a volume, the proxy delays its response until the change
// would survive a restart of the target. This file handles changes that an earlier call has made.
// If the response to the earlier call was lost, the change may not be saved yet.

// savedNVMf contains saved calls for subsystems that are not in effect on the target.
type savedNVMf []spdkrpc.ProxyMissingExport

// saved waits until all changes that the target has executed so far would survive a restart. It
// returns the saved calls for nqn and host (nil means any) that are not in effect on the target,
// but that a restarted target may execute. Without spdk-proxy, or if the proxy saves no
// configuration, saved does not wait.
func (n nvmf) saved(ctx context.Context, nqn, host *string) (savedNVMf, error) {
	return n.awaitSaved(ctx, spdkrpc.SpdkgateConfigAwaitParams{NQN: nqn, Host: host})
}

func (s *Service) awaitSaved(ctx context.Context, p spdkrpc.SpdkgateConfigAwaitParams) ([]spdkrpc.ProxyMissingExport, error) {
	missing, err := s.rpc.SpdkgateConfigAwait(ctx, p)
	switch {
	case errors.Is(err, spdkrpc.MethodNotFound):
		return nil, nil
	case p.Protocol != nil && errors.Is(err, spdkrpc.InvalidParams):
		return nil, fmt.Errorf("the spdk-proxy of target %s cannot report which iSCSI exports in its saved configuration are missing on the target: upgrade spdk-proxy there, and retry: %w", s.Name, err)
	case err != nil:
		return nil, fmt.Errorf("wait until the target's configuration is saved: %w", err)
	}
	return missing, nil
}

// marks reports whether the saved configuration contains a fence mark of h that the target lacks.
func (s savedNVMf) marks(h Host) bool {
	return slices.ContainsFunc(s, func(m spdkrpc.ProxyMissingExport) bool { return m.NQN != nil && *m.NQN == fenceNQN+h.id() })
}

// checkMayAdmit fails if the saved configuration admits a host other than h to the volume.
func (s savedNVMf) checkMayAdmit(n nvmf, id string, h Host) error {
	for _, m := range s {
		if m.NQN != nil && *m.NQN == NQN(id) && m.Host != nil && !h.is(*m.Host) {
			return fmt.Errorf("%w: the saved configuration of target %s publishes the volume to host %s: unpublish it there first; "+
				"if it is not published there, remove the host from subsystem %s through spdk-proxy, which fails but removes it from the saved configuration", ErrInUse, n.Name, *m.Host, NQN(id))
		}
	}
	return nil
}

// withdrawSaved removes the saved calls that would export the volume to a host again, or to all
// hosts if h is nil. Such calls may exist even if the volume is not exported now, because its
// subsystem was lost in a restart. SPDK refuses to remove the lost objects, but the proxy then
// removes them from the saved configuration.
func (n nvmf) withdrawSaved(ctx context.Context, id string, h *Host) error {
	nqn := NQN(id)
	for range 3 {
		missing, err := n.saved(ctx, &nqn, nil)
		if err != nil {
			return err
		}
		var hosts []string
		others := false
		for _, m := range missing {
			switch {
			case m.Host == nil:
			case h == nil || h.is(*m.Host):
				hosts = append(hosts, *m.Host)
			default:
				others = true
			}
		}
		if len(missing) == 0 || len(hosts) == 0 && h != nil {
			return nil
		}
		if _, err := n.subsystem(ctx, id); !others && errors.Is(err, errNotExported) {
			err = n.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn})
			if err != nil && !readback.Refused(err) {
				return fmt.Errorf("delete subsystem %s from the saved configuration: %w", nqn, err)
			}
			continue
		}
		if err := n.removeSaved(ctx, nqn, hosts); err != nil {
			return err
		}
		if len(hosts) == 0 {
			return nil // the export exists; its missing parts admit no host
		}
	}
	return fmt.Errorf("%w: the saved configuration of target %s still exports %s: try again", ErrBusy, n.Name, nqn)
}

// removeSaved removes hosts of a subsystem from the saved configuration.
func (n nvmf) removeSaved(ctx context.Context, nqn string, hosts []string) error {
	for _, host := range hosts {
		err := n.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: nqn, Host: host})
		if err != nil && !readback.Refused(err) {
			return fmt.Errorf("remove host %s of %s from the saved configuration: %w", host, nqn, err)
		}
	}
	return nil
}

// fenceSaved removes a host from saved exports, which do not exist on the target now but would
// exist after a restart. With dryRun, it only returns the changes that it would make.
func (n nvmf) fenceSaved(ctx context.Context, h Host, dryRun bool) (all []Fencing, err error) {
	for _, name := range []string{h.NQN, h.Multipath} {
		if name == "" {
			continue
		}
		missing, err := n.saved(ctx, nil, &name)
		if err != nil {
			return all, err
		}
		for _, m := range missing {
			if m.NQN == nil {
				continue
			}
			if !dryRun {
				if err := n.removeSaved(ctx, *m.NQN, []string{name}); err != nil {
					return all, err
				}
			}
			all = append(all, Fencing{Export: *m.NQN, Change: "remove host " + name + " from the saved configuration"})
		}
	}
	return all, nil
}

// unfenceSaved removes a host's fence mark from the saved configuration if the target lacks the
// mark.
func (n nvmf) unfenceSaved(ctx context.Context, h Host) error {
	mark := fenceNQN + h.id()
	missing, err := n.saved(ctx, &mark, nil)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := n.rpc.NVMfDeleteSubsystem(ctx, spdkrpc.NVMfDeleteSubsystemParams{NQN: mark}); err != nil && !readback.Refused(err) {
		return fmt.Errorf("delete the mark of a fenced node from the saved configuration: %w", err)
	}
	return nil
}
