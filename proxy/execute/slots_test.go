package execute

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/target"
)

// Snapshots that wait for their clients at barriers do not use the slots of other operations, even
// if many users have such snapshots.
func TestBarriersDoNotUseSlotsOfOtherOperations(t *testing.T) {
	enter := enterOperation(target.New(target.Config{Socket: "unused", QueueWait: time.Second}))
	waiting := 0
	for i := range 2 * maxBarriers {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if leave, err := enter(ctx, fmt.Sprint("user", i), true); err == nil {
			t.Cleanup(leave)
			waiting++
		}
		cancel()
	}
	require.Equal(t, maxBarriers, waiting)
	leave, err := enter(t.Context(), "other", false)
	require.NoError(t, err)
	leave()
}
