package persist

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// If a target reports no subsystems, the saver returns an error rather than saving an empty
// configuration.
func TestMissingSubsystemsCauseAnError(t *testing.T) {
	_, err := read(t.Context(), Target{Release: rpcschema.MustRelease("v26.05"), Ask: func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return json.RawMessage("[]"), nil
	}}, false)
	require.ErrorContains(t, err, "not a list of subsystems")
}

// The first success after a failure is logged once.
func TestRecoveryAfterAFailureIsLogged(t *testing.T) {
	w := newWorld(t)
	told := func() int { return strings.Count(w.log.String(), "can be saved again") }
	fail := func(err error) { w.target.mu.Lock(); defer w.target.mu.Unlock(); w.target.fail["nvmf"] = err }
	w.save()
	assert.Zero(t, told())
	fail(errors.New("gone"))
	for range 2 {
		require.Error(t, w.saver.Save(t.Context(), false))
	}
	assert.Zero(t, told())
	fail(nil)
	for range 2 {
		w.save()
	}
	assert.Equal(t, 1, told())
}
