package blocks

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type memory []byte

func (m memory) WriteAt(b []byte, at int64) (int, error) { return copy(m[at:], b), nil }
func (m memory) ReadAt(b []byte, at int64) (int, error)  { return copy(b, m[at:]), nil }

func TestInconsistentCopiesAreDetected(t *testing.T) {
	s := Stream{Seed: 7, Blocks: 300}
	m := make(memory, s.Blocks*Size)
	last, err := s.Verify(m, 0, 0)
	require.NoError(t, err, "never written")
	assert.Zero(t, last)

	ctx, cancel := context.WithCancel(t.Context())
	ack := func(n uint64, _ time.Duration) {
		if n == 500 {
			cancel()
		}
	}
	last, err = s.Write(ctx, m, 0, func(uint64) {}, ack)
	require.NoError(t, err)
	require.EqualValues(t, 500, last)
	last, err = s.Verify(m, 400, 600)
	require.NoError(t, err)
	assert.EqualValues(t, 500, last)
	_, err = s.Verify(m, 501, 600)
	require.ErrorIs(t, err, ErrInconsistent, "acknowledged writes are missing")
	_, err = s.Verify(m, 0, 499)
	require.ErrorIs(t, err, ErrInconsistent, "the copy has a write later than atMost")

	for name, damage := range map[string]func(m memory){
		"a write lost":      func(m memory) { clear(m[s.Block(499)*Size:][:Size]) },
		"an older write":    func(m memory) { s.Fill(older(s, 500), m[s.Block(500)*Size:]); s.Fill(501, m[s.Block(501)*Size:]) },
		"half a block lost": func(m memory) { clear(m[s.Block(500)*Size+2048:][:2048]) },
		"another block's":   func(m memory) { copy(m[((s.Block(500)+1)%s.Blocks)*Size:][:Size], m[s.Block(500)*Size:]) },
		"another stream's":  func(m memory) { Stream{Seed: 8, Blocks: s.Blocks}.Fill(500, m[s.Block(500)*Size:]) },
		"other data":        func(m memory) { copy(m[5*Size:], "what is this") },
	} {
		damaged := memory(bytes.Clone(m))
		damage(damaged)
		_, err := s.Verify(damaged, 0, 1000)
		assert.ErrorIs(t, err, ErrInconsistent, name)
	}
}

// older returns the number of an earlier write to n's block, or n-1 if there is none. Either number
// would be wrong in that block.
func older(s Stream, n uint64) uint64 {
	for i := n - 1; i > 0; i-- {
		if s.Block(i) == s.Block(n) {
			return i
		}
	}
	return n - 1
}

type failingDevice struct{ memory }

func (failingDevice) WriteAt([]byte, int64) (int, error) { return 0, errors.New("write failed") }

func TestWriteErrorNamesTheLastBlock(t *testing.T) {
	s := Stream{Seed: 1, Blocks: 4}
	last, err := s.Write(t.Context(), failingDevice{}, 41, func(uint64) {}, func(uint64, time.Duration) {})
	require.ErrorContains(t, err, "write 42")
	assert.EqualValues(t, 41, last)
}
