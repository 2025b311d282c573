package exports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// undoTime bounds how long the calls that undo a failed plan may take.
const undoTime = 30 * time.Second

// Run makes the calls of a plan, one after the other. done is called after each. If one fails, Run
// undoes those before it, in the reverse order, and the failed one if it may have been executed.
func (p *Plan) Run(ctx context.Context, done func(Step)) error {
	for i, s := range p.Steps {
		err := s.do(ctx)
		if err == nil {
			done(s)
			continue
		}
		undo := p.Steps[:i]
		if mayBeDone(err) {
			undo = p.Steps[:i+1]
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime) // even after an interrupt
		defer cancel()
		return undone(ctx, fmt.Errorf("%s: %w", s.Method, err), undo, done)
	}
	return nil
}

// mayBeDone reports whether a call that failed may have changed the target nevertheless.
func mayBeDone(err error) bool {
	kind := spdkrpc.KindOf(err)
	return kind == spdkrpc.OutcomeUnknown || kind == spdkrpc.NotSaved
}

// undone undoes steps, and returns failed with what it did.
func undone(ctx context.Context, failed error, steps []Step, done func(Step)) error {
	var left []error
	n := 0
	for _, s := range slices.Backward(steps) {
		if s.undo == nil {
			continue
		}
		switch err := s.undo.do(ctx); {
		case err == nil:
			done(*s.undo)
			n++
		case gone(err):
		default:
			left = append(left, fmt.Errorf("%s: %w", s.undo, err))
		}
	}
	switch {
	case len(left) > 0:
		return fmt.Errorf("%w. Some of what this command did could not be undone: %w", failed, errors.Join(left...))
	case n > 0:
		return fmt.Errorf("%w. What this command had done was undone", failed)
	case mayBeDone(failed):
		return failed
	}
	return fmt.Errorf("%w. %w", failed, ErrRefused)
}

// Verify reads the export back. It fails if the export is not as planned, for example because
// somebody else changed it at the same moment.
func (p *Plan) Verify(ctx context.Context, rpc *spdkrpc.Client) error {
	subsystems, err := rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &p.NQN})
	if err != nil || len(subsystems) != 1 {
		return fmt.Errorf("read the export back: %w", errors.Join(err, errors.New("check it with spdk-proxy exports")))
	}
	sub := &subsystems[0]
	listens := portalsOf(sub)
	for _, h := range p.hosts {
		if hostIn(sub, h) == nil {
			return fmt.Errorf("somebody changed the export at the same moment: %s does not admit host %s. Check it with spdk-proxy exports", p.NQN, h)
		}
	}
	for _, at := range p.portals {
		if !slices.Contains(listens, at) {
			return fmt.Errorf("somebody changed the export at the same moment: %s does not listen at %s. Check it with spdk-proxy exports", p.NQN, at)
		}
	}
	return nil
}

// Connect returns the commands with which a host connects to the export, one for each address.
func (p *Plan) Connect() (commands []string) {
	for _, at := range p.portals {
		commands = append(commands, fmt.Sprintf("nvme connect -t %s -a %s -s %s -n %s", strings.ToLower(at.Transport), at.Addr, at.Port, p.NQN))
	}
	return commands
}

// Hosts returns the hosts that were asked for.
func (p *Plan) Hosts() []string { return p.hosts }

// Authenticates reports whether the hosts need a key to connect.
func (p *Plan) Authenticates() bool { return p.key }
