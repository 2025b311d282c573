package export

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The initiator group of a node is never removed during an export to that node.
func TestInitiatorGroupIsNotRemovedDuringAnExport(t *testing.T) {
	u := newGroupUse()
	leave, err := u.enter(t.Context(), "a")
	require.NoError(t, err)
	second, err := u.enter(t.Context(), "a")
	require.NoError(t, err)
	_, ok := u.remove("a")
	assert.False(t, ok, "two exports are in progress")
	second()
	_, ok = u.remove("a")
	assert.False(t, ok, "one export is in progress")
	leave()
	assert.Empty(t, u.exports, "no entry stays")
	done, ok := u.remove("a")
	require.True(t, ok)
	_, ok = u.remove("a")
	assert.False(t, ok)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = u.enter(ctx, "a")
	require.ErrorIs(t, err, context.Canceled, "a caller can stop waiting")
	_, err = u.enter(t.Context(), "b")
	require.NoError(t, err)
	entered := make(chan error)
	go func() {
		_, err := u.enter(t.Context(), "a")
		entered <- err
	}()
	done()
	require.NoError(t, <-entered)
}

// Addresses are compared by value, regardless of spelling. Host names are compared as strings.
func TestAddressesAreComparedByValue(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true}, {"192.0.2.1", "192.0.2.2", false}, {"[fd00::1]", "fd00:0::1", true}, {"fd00::1", "fd00::2", false},
		{"storage", "storage", true}, {"storage", "192.0.2.1", false}, {"192.0.2.1", "storage", false}, {"storage", "Storage", false}, {"", "::", false},
	} {
		assert.Equal(t, c.same, sameAddr(c.a, c.b), "%q %q", c.a, c.b)
	}
}

// An admission waits while the node's initiator group is being removed. If the call ends in the
// meantime, it makes no RPC.
func TestAdmissionWaitsForTheRemovalOfItsGroup(t *testing.T) {
	h := Host{IQN: hostPrefix + "n1"}
	i := iscsi{NewTarget(Config{Name: "t0", Transport: ISCSI}).Service(nil)}
	done, ok := i.groups.remove(h.IQN)
	require.True(t, ok)
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := i.admit(ctx, "volume", h, func(context.Context) error { return nil })
	require.ErrorIs(t, err, context.Canceled)
}
