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

// undoTime limits how long the calls that undo a failed plan may take.
const undoTime = 30 * time.Second

// Run makes a plan's calls, one after another, and calls done after each of them. If a call fails,
// Run undoes the previous calls in reverse order. If the failed call may have been executed, or if
// its check failed, Run undoes that call as well.
func (p *Plan) Run(ctx context.Context, done func(Step)) error {
	for i, s := range p.Steps {
		err := s.do(ctx)
		undo := p.Steps[:i]
		if err == nil || mayBeDone(err) {
			undo = p.Steps[:i+1]
		}
		if err == nil {
			done(s)
			if s.check != nil {
				err = s.check(ctx)
			}
		}
		if err == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime) // even after an interrupt
		defer cancel()
		return fmt.Errorf("%w. %w", err, undone(ctx, undo, p.Steps[:i], mayBeDone(err), done))
	}
	return nil
}

// mayBeDone reports whether a failed call may have changed the target.
func mayBeDone(err error) bool {
	kind := spdkrpc.KindOf(err)
	return kind == spdkrpc.OutcomeUnknown || kind == spdkrpc.NotSaved
}

// undone undoes steps in reverse order. It returns a description of the resulting state, to be
// appended to an error. made lists the steps that are known to have been executed.
func undone(ctx context.Context, steps, made []Step, unsure bool, done func(Step)) error {
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
	var stays []string
	for _, s := range made {
		if s.stays {
			stays = append(stays, s.String())
		}
	}
	switch {
	case len(left) > 0:
		return &outcome{"These calls, which undo what this command did, failed: ", errors.Join(left...)}
	case len(stays) > 0:
		return &outcome{"These calls were made and stay in effect: ", errors.New(strings.Join(stays, ", "))}
	case n > 0:
		return &outcome{"What this command had done was undone", nil}
	case unsure:
		return &outcome{"Check the state (spdk-proxy exports), then repeat the command", nil}
	}
	return &outcome{"Nothing was changed", nil}
}

// An outcome is the error of a failed step, with a description of the target's state after it.
type outcome struct {
	text string
	err  error
}

func (o *outcome) Error() string {
	if o.err == nil {
		return o.text
	}
	return o.text + o.err.Error()
}

func (o *outcome) Unwrap() error { return o.err }

// Verify reads back the export. It returns an error if the export is not as planned, for example
// because another user has changed it in the meantime.
func (p *Plan) Verify(ctx context.Context, rpc *spdkrpc.Client) error {
	subsystems, err := rpc.NVMfGetSubsystems(ctx, spdkrpc.NVMfGetSubsystemsParams{NQN: &p.NQN})
	if err != nil || len(subsystems) != 1 {
		return fmt.Errorf("cannot read %s back: %w", p.NQN, errors.Join(err, errors.New("check it with spdk-proxy exports")))
	}
	sub := &subsystems[0]
	differs := func(text string, args ...any) error {
		return fmt.Errorf("another user concurrently changed the export: %s %s. Check it with spdk-proxy exports", p.NQN, fmt.Sprintf(text, args...))
	}
	switch {
	case exporting(subsystems, p.volume) == nil:
		return differs("does not export volume %s", p.Volume)
	case sub.AllowAnyHost != p.anyHost:
		return differs("does not admit the same hosts")
	}
	for _, h := range p.hosts {
		if hostIn(sub, h) == nil {
			return differs("does not admit host %s", h)
		}
	}
	listens := portalsOf(sub)
	for _, at := range p.portals {
		if !slices.Contains(listens, at) {
			return differs("does not listen at %s", at)
		}
	}
	return nil
}

// Connect returns the commands that connect a host to the export, one for each address.
func (p *Plan) Connect() (commands []string) {
	for _, at := range p.portals {
		commands = append(commands, fmt.Sprintf("nvme connect -t %s -a %s -s %s -n %s", strings.ToLower(at.Transport), quote(at.Addr), quote(at.Port), quote(p.NQN)))
	}
	return commands
}

// quote quotes a word for a shell, because another user may have chosen the word.
func quote(word string) string {
	plain := func(c rune) bool {
		return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.ContainsRune(":._-", c)
	}
	if strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Unpredicted returns why it cannot be predicted which of the plan's calls the proxy would refuse,
// or "" if it can.
func (p *Plan) Unpredicted() string { return p.unread }

// Hosts returns the hosts in the request.
func (p *Plan) Hosts() []string { return p.hosts }

// Authenticates reports whether the hosts need a key to connect.
func (p *Plan) Authenticates() bool { return p.key }
