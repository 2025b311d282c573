package mirror

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOnlyNamespacesAreOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, make([]byte, superblockBytes), 0o600))
	for _, path := range []string{"/dev/null", file} {
		_, err := namespaces{}.open(path)
		require.ErrorContains(t, err, "is not a block device")
	}
	_, err := namespaces{}.open(file + " missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = namespaces{}.number(file + " missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	number, err := namespaces{}.number("/dev/null")
	require.NoError(t, err)
	assert.Equal(t, "1:3", number)
}
