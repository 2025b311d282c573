package volume

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The error says why the changes are unknown, even if the error does not come from the target.
func TestNoChangesKeepsTheReason(t *testing.T) {
	require.Equal(t, context.Canceled, noChanges(context.Canceled))
	require.ErrorIs(t, noChanges(&spdkrpc.Error{Kind: spdkrpc.NoSuchDevice}), ErrNotFound)
	require.ErrorIs(t, noChanges(&spdkrpc.Error{Kind: spdkrpc.MethodNotFound}), ErrNoChanges)
}
