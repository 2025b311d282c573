package device

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
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
	require.ErrorIs(t, err, ErrRead)
	assert.Equal(t, 4096, n)
	require.NoError(t, d.Close())
	_, err = d.ReadAt(b, 0)
	require.ErrorIs(t, err, os.ErrClosed)
	require.ErrorIs(t, err, ErrRead)
}

// The target's working directory is unknown, so a relative path could name another file.
func TestRelativePathsAreRefused(t *testing.T) {
	path := write(t, make([]byte, 4096))
	t.Chdir(filepath.Dir(path))
	for _, kind := range []string{"aio", "uring"} {
		for name, refused := range map[string]bool{path: false, filepath.Base(path): true} {
			b := spdkrpc.BdevInfo{Name: "disk0"}
			require.NoError(t, json.Unmarshal(fmt.Appendf(nil, `{%q: {"filename": %q}}`, kind, name), &b.DriverSpecific))
			d, err := Open(t.Context(), nil, b)
			if refused {
				require.ErrorIs(t, err, ErrNotReadable)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, d.Close())
		}
	}
}
