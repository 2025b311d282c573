package quiesce

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// thaw puts the states back that paths had, and returns when they are seen to be.
// What somebody else has taken away stays so.
//
// Where each call that froze a path was answered (certain), what somebody else
// has changed since stays so, too. Otherwise such a call may be executed yet, so
// that what is read means nothing: each path is set, which SPDK does after what it
// was asked before, or refuses as long as that is under way.
func thaw(ctx context.Context, t *Target, all []paths, certain bool) error {
	return bySubsystem(ctx, all, func(ctx context.Context, p paths) error {
		set, err := p.changed(), error(nil)
		if certain {
			if set, err = frozen(ctx, t, p); err != nil {
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
		there, left, readErr := read(ctx, t, p)
		switch {
		case readErr != nil:
			return errors.Join(err, readErr)
		case len(left) > 0, !certain && slices.ContainsFunc(refused, func(l path) bool { return slices.Contains(there, l) }):
			return errors.Join(errNotThawed, err)
		}
		return nil // whatever was answered
	})
}

// changed lists the paths that freezing changes.
func (p paths) changed() (list []path) {
	for _, l := range p.Listeners {
		if l.State != inaccessible {
			list = append(list, l)
		}
	}
	return list
}

// frozen lists the paths that are inaccessible and were not.
func frozen(ctx context.Context, t *Target, p paths) (left []path, err error) {
	_, left, err = read(ctx, t, p)
	return left, err
}

// read tells which of the paths that freezing changes are there, and which of
// these are inaccessible.
func read(ctx context.Context, t *Target, p paths) (there, left []path, err error) {
	listeners, err := t.rpc.NVMfSubsystemGetListeners(ctx, spdkrpc.NVMfSubsystemGetListenersParams{NQN: p.NQN})
	if err != nil {
		_, gone := t.rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &p.NQN})
		if errors.Is(gone, spdkrpc.NoSuchDevice) || errors.Is(gone, spdkrpc.InvalidParams) {
			return nil, nil, nil // with all of its paths
		}
		return nil, nil, fmt.Errorf("read the paths' states: %w", err)
	}
	for _, was := range p.changed() {
		i := slices.IndexFunc(listeners, func(l spdkrpc.NVMfListener) bool { return sameAddress(was.Address, l.Address) })
		if i < 0 || len(listeners[i].ANAStates) == 0 {
			continue // another subsystem of the same name, without ANA, has nothing to thaw
		}
		there = append(there, was)
		if stateOf(listeners[i], p.Group) == inaccessible {
			left = append(left, was)
		}
	}
	return there, left, nil
}
