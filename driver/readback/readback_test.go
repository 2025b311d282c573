package readback

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestRefusalsByTheTargetAreRecognized(t *testing.T) {
	for want, errs := range map[bool][]error{
		true:  {&spdkrpc.Error{Kind: spdkrpc.InvalidParams, Code: -32602}, &spdkrpc.Error{Kind: spdkrpc.NoSpace, Code: -28}},
		false: {errors.New("surprise"), &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown, Code: -32001}, &spdkrpc.Error{Kind: spdkrpc.InvalidParams}, &spdkrpc.Error{Kind: spdkrpc.Failed}},
	} {
		for _, err := range errs {
			assert.Equal(t, want, Refused(fmt.Errorf("create: %w", err)), err)
		}
	}
}

func TestStepReadsBackUnknownOutcomes(t *testing.T) {
	lost := &spdkrpc.Error{Kind: spdkrpc.OutcomeUnknown}
	unreachable := &spdkrpc.Error{Kind: spdkrpc.Unreachable}
	answer := func(err error) func() error { return func() error { return err } }
	reads := 0
	done := func(done bool, err error) func() (bool, error) {
		return func() (bool, error) { reads++; return done, err }
	}
	require.NoError(t, NewStep("add", answer(nil), done(false, nil)).Run())
	assert.Zero(t, reads, "no read-back after a success")
	require.NoError(t, NewStep("add", answer(lost), done(true, nil)).Run())
	require.ErrorIs(t, NewStep("add", answer(unreachable), done(true, nil)).Run(), spdkrpc.Unreachable)
	assert.Equal(t, 1, reads, "no read-back if the call was certainly not executed")
	for _, d := range []func() (bool, error){done(false, nil), done(true, errors.New("surprise"))} {
		err := NewStep("add LUN 0", answer(lost), d).Run()
		require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
		require.ErrorContains(t, err, "add LUN 0: ")
	}
	steps := 0
	count := func() error { steps++; return nil }
	never := done(false, nil)
	require.Error(t, RunAll([]Step{NewStep("a", count, never), NewStep("b", answer(unreachable), never), NewStep("c", count, never)}))
	assert.Equal(t, 1, steps, "RunAll stops at the first step that fails")
	require.NoError(t, RunAll([]Step{NewStep("a", count, never), NewStep("b", count, never)}))
}

func TestReadingBackClarifiesUnknownOutcomes(t *testing.T) {
	for kind, want := range map[spdkrpc.Kind]bool{
		spdkrpc.OutcomeUnknown: true, spdkrpc.Exists: true, spdkrpc.InvalidParams: true, spdkrpc.NoSuchDevice: true,
		spdkrpc.Unreachable: false, spdkrpc.InUse: false, spdkrpc.Denied: false, spdkrpc.MethodNotFound: false, spdkrpc.WrongState: false, spdkrpc.NotSaved: false,
	} {
		assert.Equal(t, want, Clarifies(fmt.Errorf("x: %w", &spdkrpc.Error{Kind: kind, Code: -1})), kind)
	}
}
