package quiesce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// thaw restores the previous states of the paths, and reads them back. It ignores paths that
// another client has removed.
//
// certain means that SPDK has responded to each call that froze a path. In that case, if another
// client has changed the state of a path in the meantime, thaw leaves that path alone. If certain
// is false, SPDK may still execute a call that freezes a path, so the state that it reports may
// still change. Therefore, thaw sets the state of every path. SPDK executes thaw's calls after the
// earlier calls, or refuses them while the earlier calls are running.
func thaw(ctx context.Context, t *Target, all []paths, certain bool) error {
	return bySubsystem(ctx, all, func(ctx context.Context, p paths) error {
		set, err := p.changed(), error(nil)
		if certain {
			if set, err = stillFrozen(ctx, t, p); err != nil {
				return err
			}
		}
		var refused []path
		for _, l := range set {
			if e := setState(ctx, t, p, l.Address, l.State); e != nil {
				refused, err = append(refused, l), errors.Join(err, e)
			}
		}
		if len(set) == 0 {
			return err
		}
		existing, left, readErr := readStates(ctx, t, p)
		switch {
		case readErr != nil:
			return errors.Join(err, readErr)
		case len(left) > 0, !certain && slices.ContainsFunc(refused, func(l path) bool { return slices.Contains(existing, l) }):
			return errors.Join(errNotThawed, err)
		}
		return nil // even if a call failed, because the states are now correct
	})
}

// changed lists the paths that a freeze affects.
func (p paths) changed() (list []path) {
	for _, l := range p.Listeners {
		if l.State != inaccessible {
			list = append(list, l)
		}
	}
	return list
}

// stillFrozen lists the paths that are inaccessible now but were not before the freeze.
func stillFrozen(ctx context.Context, t *Target, p paths) (left []path, err error) {
	_, left, err = readStates(ctx, t, p)
	return left, err
}

// readStates returns the paths affected by a freeze that still exist, and those that are still
// inaccessible.
func readStates(ctx context.Context, t *Target, p paths) (existing, left []path, err error) {
	listeners, err := t.rpc.NVMfSubsystemGetListeners(ctx, spdkrpc.NVMfSubsystemGetListenersParams{NQN: p.NQN})
	if err != nil {
		_, gone := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &p.NQN})
		if errors.Is(gone, spdkrpc.NoSuchDevice) || errors.Is(gone, spdkrpc.InvalidParams) {
			return nil, nil, nil // the subsystem was deleted with all its paths
		}
		return nil, nil, fmt.Errorf("read the states of the paths: %w", err)
	}
	for _, was := range p.changed() {
		i := slices.IndexFunc(listeners, func(l spdkrpc.NVMfListener) bool { return sameAddress(was.Address, l.Address) })
		if i < 0 || len(listeners[i].ANAStates) == 0 {
			continue // a new subsystem of the same name without ANA has nothing to thaw
		}
		existing = append(existing, was)
		if stateOf(listeners[i], p.Group) == inaccessible {
			left = append(left, was)
		}
	}
	return existing, left, nil
}
