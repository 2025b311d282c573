package move

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fileDevice returns a file with the given contents as a device.
func fileDevice(t *testing.T, content []byte, flag int) *device {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	d, err := openDevice(path, flag)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestUnopenableDevicesAreReported(t *testing.T) {
	_, err := openDevice(filepath.Join(t.TempDir(), "none"), os.O_RDONLY)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = openDevice(t.TempDir(), os.O_RDWR)
	require.Error(t, err)
	d := fileDevice(t, make([]byte, 5000), os.O_RDONLY)
	assert.EqualValues(t, 5000, d.size)
}

// Only differing chunks are written, on devices of any size. An error on either device makes the
// copy fail.
func TestCopyWritesOnlyDifferingChunks(t *testing.T) {
	for _, size := range []int{markBytes, markBytes + 1, chunkBytes, chunkBytes + 1, 2*chunkBytes + 512} {
		want := bytes.Repeat([]byte{7}, size)
		half := append(bytes.Repeat([]byte{7}, size/2), make([]byte, size-size/2)...)
		m := &moving{from: fileDevice(t, want, os.O_RDONLY), to: fileDevice(t, half, os.O_RDWR)}
		require.NoError(t, m.differing(t.Context()))
		assert.EqualValues(t, size-markBytes, m.done.Load())
		assert.LessOrEqual(t, m.written.Load(), m.done.Load())
		m.marked = true
		_, err := m.verify(t.Context())
		require.NoError(t, err)
		assert.True(t, m.data)
		m.marked = false
		_, err = m.verify(t.Context())
		if size == markBytes {
			require.ErrorIs(t, err, ErrDiffers, "the first block is written last")
		}
		first, err := m.from.first()
		require.NoError(t, err)
		require.NoError(t, m.to.setFirst(first))
		sum, err := m.verify(t.Context())
		require.NoError(t, err)
		assert.Len(t, sum, 64)
		m.written.Store(0)
		require.NoError(t, m.differing(t.Context()))
		assert.Zero(t, m.written.Load(), "nothing differs")
	}
	content, other := bytes.Repeat([]byte{7}, 2*chunkBytes), bytes.Repeat([]byte{8}, 2*chunkBytes)
	for name, m := range map[string]*moving{
		"the original is shorter": {from: fileDevice(t, content[:chunkBytes], os.O_RDONLY), to: fileDevice(t, content, os.O_RDWR)},
		"the copy is shorter":     {from: fileDevice(t, content, os.O_RDONLY), to: fileDevice(t, content[:chunkBytes], os.O_RDWR)},
		"the copy is read-only":   {from: fileDevice(t, content, os.O_RDONLY), to: fileDevice(t, other, os.O_RDONLY)},
	} {
		m.from.size = int64(len(content))
		require.Error(t, m.differing(t.Context()), name)
		if name != "the copy is read-only" {
			_, err := m.verify(t.Context())
			require.Error(t, err, name)
			require.NotErrorIs(t, err, ErrDiffers, name)
		} else {
			require.Error(t, m.to.setFirst(content[:markBytes]))
		}
	}
	_, err := fileDevice(t, content[:markBytes-1], os.O_RDONLY).first()
	require.Error(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := &moving{from: fileDevice(t, content, os.O_RDONLY), to: fileDevice(t, other, os.O_RDWR)}
	require.ErrorIs(t, m.differing(ctx), context.Canceled)
	_, err = m.verify(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
