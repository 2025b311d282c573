package quiesce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// freeze makes all paths inaccessible, and returns once no I/O to their namespaces is in flight. It
// makes calls for the same subsystem one after another, because older releases refuse concurrent
// calls.
func freeze(ctx context.Context, t *Target, all []paths) error {
	if err := bySubsystem(ctx, all, func(ctx context.Context, p paths) error {
		for _, l := range p.changed() {
			if err := setState(ctx, t, p, l.Address, inaccessible); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return fmt.Errorf("make the paths inaccessible: %w", err)
	}
	if err := drain(ctx, t, all); err != nil {
		return err
	}
	// The read-back must come last: it pauses the subsystem, and SPDK cannot drain a paused
	// subsystem.
	return bySubsystem(ctx, all, func(ctx context.Context, p paths) error { return checkFrozen(ctx, t, p) })
}

func setState(ctx context.Context, t *Target, p paths, at spdkrpc.NVMfTransportID, state string) error {
	return t.rpc.NVMfSubsystemListenerSetANAState(ctx, spdkrpc.NVMfSubsystemListenerSetANAStateParams{
		NQN: p.NQN, ListenAddress: listenAddress(at), ANAState: spdkrpc.NVMfSubsystemListenerSetANAStateANAState(state), Anagrpid: &p.Group,
	})
}

// drain waits until no I/O to the namespaces is in flight. SPDK waits for this I/O when it pauses a
// namespace, which it does when a call sets the namespace's ANA group, even to the current group.
//
// Releases without a method that sets the group pause a namespace when a call adds another
// namespace with the same NSID. After the pause, they refuse the call, because the NSID is in use.
// The bdev named in this call must not exist.
//
// If a subsystem is already paused, SPDK does not wait for I/O. Calls through this proxy that would
// pause the subsystem wait for a lock. However, SPDK itself may pause the subsystem, for example
// when another of its volumes has grown, and so may calls made directly at SPDK's socket. SPDK
// responds to a call that arrives during such a pause only after the pause, so drain makes each
// call twice. The second call then drains the namespace.
func drain(ctx context.Context, t *Target, all []paths) error {
	return bySubsystem(ctx, all, func(ctx context.Context, p paths) error {
		for _, nsid := range slices.Concat(p.Namespaces, p.Namespaces) {
			var err error
			if !t.Release.Has(rpcschema.SetsANAGroup) {
				_, err = t.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{
					NQN: p.NQN, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: noBdev, NSID: &nsid},
				})
				if errors.Is(err, spdkrpc.InvalidParams) {
					err = nil
				} else if err == nil {
					err = errors.New("the namespace has been removed")
				}
			} else {
				err = t.rpc.NVMfSubsystemSetNSANAGroup(ctx, spdkrpc.NVMfSubsystemSetNSANAGroupParams{NQN: p.NQN, NSID: nsid, Anagrpid: p.Group})
			}
			if err != nil {
				return fmt.Errorf("wait for I/O in flight: %w", err)
			}
		}
		return nil
	})
}

// Draining returns the name that is locked while a subsystem's namespaces are being drained. Calls
// that change nothing but pause the subsystem share this lock. After the drain, pauses are
// harmless, except before v24.09: those releases refuse concurrent pauses, including the pause that
// the thaw needs.
func Draining(nqn string) string { return "draining " + nqn }

func drainingLocks(all []paths) lockSet {
	l := lockSet{}
	for _, p := range all {
		l.add(exclusive, Draining(p.NQN))
	}
	return l
}

// noBdev is a name that no bdev has.
const noBdev = "spdkgate-drains-this-namespace-and-there-is-no-bdev-of-this-name"

// checkFrozen reads back the state of the paths. It verifies that the target has frozen them, and
// that they still lead to the same namespaces.
func checkFrozen(ctx context.Context, t *Target, p paths) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		listeners, err := t.rpc.NVMfSubsystemGetListeners(ctx, spdkrpc.NVMfSubsystemGetListenersParams{NQN: p.NQN})
		if err != nil {
			return fmt.Errorf("read back the paths' states: %w", err)
		}
		for _, l := range listeners {
			if state := stateOf(l, p.Group); state != inaccessible {
				return fmt.Errorf("a path is %q instead of inaccessible: another client is changing the subsystem", state)
			}
		}
		return nil
	})
	g.Go(func() error {
		subs, err := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &p.NQN})
		if err != nil {
			return fmt.Errorf("read back the namespaces: %w", err)
		}
		for _, bdev := range p.bdevs {
			if len(subs) != 1 {
				return errors.New("the subsystem has been deleted")
			}
			if ns := namespaceOf(subs[0], bdev); ns == nil || ns.Anagrpid == nil || *ns.Anagrpid != p.Group || !slices.Contains(p.Namespaces, uint32(ns.NSID)) {
				return errors.New("a namespace has changed: another client is changing the subsystem")
			}
		}
		return nil
	})
	return g.Wait()
}

// bySubsystem calls do for all paths: concurrently for different subsystems, and sequentially
// within a subsystem.
func bySubsystem(ctx context.Context, all []paths, do func(context.Context, paths) error) error {
	byNQN := map[string][]paths{}
	for _, p := range all {
		byNQN[p.NQN] = append(byNQN[p.NQN], p)
	}
	var g errgroup.Group // no shared context, so that one failure does not cancel the other calls
	for _, list := range byNQN {
		g.Go(func() error {
			var err error
			for _, p := range list {
				err = errors.Join(err, do(ctx, p))
			}
			return err
		})
	}
	return g.Wait()
}
