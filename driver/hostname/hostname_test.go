package hostname_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostname"
)

// The names of the node of a move identify the copy. The names of all other nodes identify no copy.
func TestMoveHostIdentifiesTheCopy(t *testing.T) {
	const original = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	for range 100 {
		copied := uuid.NewString()
		h := hostname.Of(hostname.MoveNode(original, copied))
		for _, name := range []string{h.NQN, h.IQN, h.Multipath().NQN} {
			got, ok := hostname.CopyOf(name)
			require.True(t, ok, name)
			assert.Equal(t, copied, got)
		}
		assert.NotEqual(t, h.UUID, h.Multipath().UUID)
		for _, id := range []string{h.UUID, h.Multipath().UUID} {
			_, err := uuid.Parse(id)
			require.NoError(t, err)
		}
	}
	copied := uuid.NewString()
	for _, node := range []string{
		"worker-1", "move-" + original, "prepare-move-" + original, hostname.MoveNode(original, copied) + "x", hostname.MoveNode(original, ""),
		hostname.MoveNode(original, strings.ToUpper(copied)), "move-" + original + "." + copied, hostname.MoveNode("worker-1", copied),
		hostname.MoveNode(original, uuid.NewSHA1(uuid.Nil, []byte("not version 4")).String()),
	} {
		h := hostname.Of(node)
		for _, name := range []string{h.NQN, h.IQN, h.Multipath().NQN, node} {
			_, ok := hostname.CopyOf(name)
			assert.False(t, ok, "%s: %s", node, name)
		}
	}
}
