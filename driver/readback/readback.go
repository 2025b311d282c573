// Package readback does steps on a target whose result is learned by reading back. A failed call says little: targets of
// different releases fail differently, or not at all, when a thing is there already, and a lost reply says nothing.
//
// It may not know what the steps are about.
package readback

import (
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Step is a change, and the question whether it is done.
type Step struct {
	What string
	do   func() error
	done func() (bool, error)
}

// NewStep returns a step: what it is, for errors, such as "add LUN 0"; do, the change; and done, which reads back whether
// it is made. done is called only when do failed: then another call may have made the change, or none.
func NewStep(what string, do func() error, done func() (bool, error)) Step {
	return Step{what, do, done}
}

// Run does a step. It succeeds if do does, or if reading back tells that the step is done.
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

// RunAll does steps in order, until one fails.
func RunAll(steps []Step) error {
	for _, s := range steps {
		if err := s.Run(); err != nil {
			return err
		}
	}
	return nil
}

// Clarifies tells whether reading back can clarify what a failed call did. It cannot when the target does not answer, and
// need not when the call was certainly not executed.
func Clarifies(failed error) bool {
	switch spdkrpc.KindOf(failed) {
	case spdkrpc.Unreachable, spdkrpc.InUse, spdkrpc.Denied, spdkrpc.MethodNotFound, spdkrpc.WrongState:
		return false
	}
	return true
}

// Refused tells whether SPDK itself refused a call: what it was to do has not happened and will not. Without an answer, or
// with one that cannot be read, the call may still be executed.
func Refused(failed error) bool {
	var e *spdkrpc.Error
	return errors.As(failed, &e) && e.Code != 0 && e.Kind != spdkrpc.OutcomeUnknown
}
