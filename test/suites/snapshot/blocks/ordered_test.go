package blocks

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Copies made at the same time are in order, and copies made at different times are not.
func TestSimultaneousCopiesAreOrdered(t *testing.T) {
	for moment := uint64(1); moment < 3*2*OrderedBlocks; moment += 7 {
		devices := []memory{make([]byte, OrderedBlocks*clusterBytes), make([]byte, OrderedBlocks*clusterBytes)}
		var early []io.ReaderAt
		ctx, stop := context.WithCancel(t.Context())
		copies := func() (all []io.ReaderAt) {
			for _, d := range devices {
				all = append(all, bytes.NewReader(bytes.Clone(d)))
			}
			return all
		}
		require.NoError(t, WriteInTurn(ctx, []io.WriterAt{devices[0], devices[1]}, func(n uint64, _ time.Duration) {
			switch n {
			case moment:
				early = copies()
			case moment + 2:
				stop()
			}
		}))
		ordered, err := InOrder(early)
		require.NoError(t, err)
		assert.True(t, ordered, "after write %d", moment)
		// One device's copy lacks a write that the last write to the other device depends on.
		i, _ := PlaceOf(moment+1, len(devices))
		mixed := copies()
		mixed[i] = early[i]
		ordered, err = InOrder(mixed)
		require.NoError(t, err)
		assert.False(t, ordered, "copy %d of write %d, the other of write %d", i, moment, moment+2)
	}
}
