package device

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func write(t *testing.T, content []byte) string {
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// A disk that cannot be read is reported as an error, not as a damaged lvstore.
func TestReadErrorsAreReported(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096/16)
	d, err := OpenFile(write(t, append(content, content...)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	b := make([]byte, 4096)
	for range 2 {
		n, err := d.ReadAt(b, 4096)
		require.NoError(t, err)
		assert.Equal(t, content, b[:n])
	}
	large := make([]byte, 8192)
	n, err := d.ReadAt(large, 0)
	require.NoError(t, err)
	assert.Equal(t, 8192, n)
	n, err = d.ReadAt(large, 4096)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, 4096, n)
	require.NoError(t, d.Close())
	_, err = d.ReadAt(b, 0)
	require.ErrorIs(t, err, os.ErrClosed)
}
