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

// freeze makes all paths inaccessible, and returns when no I/O is under way on
// what lies behind them. Calls on one subsystem follow each other, as older
// releases refuse one while another is under way.
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
	check := func() error {
		return bySubsystem(ctx, all, func(ctx context.Context, p paths) error { return isFrozen(ctx, t, p) })
	}
	if t.Release.Before(drainsSince) { // it takes one call on a subsystem at a time
		if err := drain(ctx, t, all); err != nil {
			return err
		}
		return check()
	}
	// The states are read beside the draining, so that the hosts wait no longer for
	// it: what was inaccessible before I/O was waited for stays so, as calls that
	// would change it wait at the gate.
	var g errgroup.Group
	g.Go(func() error { return drain(ctx, t, all) })
	g.Go(check)
	return g.Wait()
}

func setState(ctx context.Context, t *Target, p paths, at spdkrpc.NVMfTransportID, state string) error {
	return t.rpc.NVMfSubsystemListenerSetANAState(ctx, spdkrpc.NVMfSubsystemListenerSetANAStateParams{
		NQN: p.NQN, ListenAddress: listenAddress(at), ANAState: spdkrpc.NVMfSubsystemListenerSetANAStateANAState(state), Anagrpid: &p.Group,
	})
}

var drainsSince = rpcschema.MustRelease("v24.09")

// drain waits until no I/O is under way. SPDK pauses a namespace for that, which
// it does when its ANA group is set, if only to the one that it has.
//
// Releases without that method pause one when a namespace is added under its
// NSID; the refusal, as the NSID is taken, comes when it is paused. The bdev that
// it names must not exist.
func drain(ctx context.Context, t *Target, all []paths) error {
	return bySubsystem(ctx, all, func(ctx context.Context, p paths) error {
		for _, nsid := range p.Namespaces {
			var err error
			if t.Release.Before(drainsSince) {
				_, err = t.rpc.NVMfSubsystemAddNS(ctx, spdkrpc.NVMfSubsystemAddNSParams{
					NQN: p.NQN, Namespace: spdkrpc.NVMfNamespaceParams{BdevName: nothing, NSID: &nsid},
				})
				if errors.Is(err, spdkrpc.InvalidParams) {
					err = nil
				} else if err == nil {
					err = errors.New("the namespace was gone")
				}
			} else {
				err = t.rpc.NVMfSubsystemSetNSANAGroup(ctx, spdkrpc.NVMfSubsystemSetNSANAGroupParams{NQN: p.NQN, NSID: nsid, Anagrpid: p.Group})
			}
			if err != nil {
				return fmt.Errorf("wait for the I/O under way: %w", err)
			}
		}
		return nil
	})
}

// nothing is the name of no bdev.
const nothing = "spdkgate-drains-this-namespace-and-there-is-no-bdev-of-this-name"

// isFrozen holds what the target says against what should be.
func isFrozen(ctx context.Context, t *Target, p paths) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		listeners, err := t.rpc.NVMfSubsystemGetListeners(ctx, spdkrpc.NVMfSubsystemGetListenersParams{NQN: p.NQN})
		if err != nil {
			return fmt.Errorf("read back the paths' states: %w", err)
		}
		for _, l := range listeners {
			if state := stateOf(l, p.Group); state != inaccessible {
				return fmt.Errorf("a path is %q instead of inaccessible: somebody else changes the subsystem", state)
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
				return errors.New("the subsystem is gone")
			}
			if ns := namespaceOf(subs[0], bdev); ns == nil || ns.Anagrpid == nil || *ns.Anagrpid != p.Group || !slices.Contains(p.Namespaces, uint32(ns.NSID)) {
				return errors.New("a namespace has changed: somebody else changes the subsystem")
			}
		}
		return nil
	})
	return g.Wait()
}

// bySubsystem does something with all paths, one subsystem beside the other.
func bySubsystem(ctx context.Context, all []paths, do func(context.Context, paths) error) error {
	byNQN := map[string][]paths{}
	for _, p := range all {
		byNQN[p.NQN] = append(byNQN[p.NQN], p)
	}
	var g errgroup.Group // each to its end, whatever becomes of the others
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
