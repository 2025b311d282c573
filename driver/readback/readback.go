// Package readback runs steps on a target and reads back whether they are done. The error of a
// failed call is not reliable. If an object already exists, some releases of SPDK fail in various
// ways, and other releases do not fail at all. If the reply is lost, the call may still have been
// executed.
//
// Package readback must not depend on what the steps do.
package readback

import (
	"errors"
	"fmt"
	"sync"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Step is a change to a target, with a check of whether it is done.
type Step struct {
	What string
	do   func() error
	done func() (bool, error)
}

// NewStep returns a step. action describes the step in errors, such as "add LUN 0"; do makes the
// change; done reads back whether this or another call has made the change. done is called only if
// do fails.
func NewStep(action string, do func() error, done func() (bool, error)) Step {
	return Step{action, do, done}
}

// Run runs a step. It succeeds if do succeeds, or if done reports that the change has been made.
func (s Step) Run() error {
	failed := s.do()
	if failed == nil {
		return nil
	}
	if Clarifies(failed) {
		if done, err := s.done(); err == nil && done {
			return nil
		}
	}
	return fmt.Errorf("%s: %w", s.What, failed)
}

// RunAll runs steps in order until one fails.
func RunAll(steps []Step) error {
	for _, s := range steps {
		if err := s.Run(); err != nil {
			return err
		}
	}
	return nil
}

// RunAtOnce runs steps concurrently. When all steps have ended, it returns the errors of the failed
// steps.
func RunAtOnce(steps []Step) error {
	failed := make([]error, len(steps))
	var running sync.WaitGroup
	for i, s := range steps {
		running.Go(func() { failed[i] = s.Run() })
	}
	running.Wait()
	return errors.Join(failed...)
}

// Clarifies reports whether it is useful to read back after a failed call. It is not useful if the
// target does not respond, if the call was definitely not executed, or if the call was executed but
// not saved.
func Clarifies(failed error) bool {
	switch spdkrpc.KindOf(failed) {
	case spdkrpc.Unreachable, spdkrpc.InUse, spdkrpc.Denied, spdkrpc.MethodNotFound, spdkrpc.WrongState, spdkrpc.NotSaved:
		return false
	}
	return true
}

// Refused reports whether SPDK itself refused a call, so that the call has not been and will not be
// executed. If there is no response, or the response cannot be decoded, the call may still be
// executed.
func Refused(failed error) bool {
	var e *spdkrpc.Error
	return errors.As(failed, &e) && e.Code != 0 && e.Kind != spdkrpc.OutcomeUnknown && e.Kind != spdkrpc.NotSaved
}
