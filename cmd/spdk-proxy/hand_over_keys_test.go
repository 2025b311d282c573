package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The command hand-over-keys accepts the arguments in spdk_tgt's unit file, and works with the
// host's user names.
func TestHandOverKeysAcceptsTheUnitsArguments(t *testing.T) {
	handOver := func(args ...string) (string, error) {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"hand-over-keys"}, args...))
		err := root.Execute()
		return out.String(), err
	}
	dir := filepath.Join(t.TempDir(), "keys")
	_, err := handOver("--dir", dir)
	require.ErrorContains(t, err, "--to is missing")
	_, err = handOver("--dir", dir, "--to", "no such user")
	require.ErrorContains(t, err, "the user that spdk_tgt runs as")
	out, err := handOver("--dir", dir, "--to", strconv.Itoa(os.Geteuid()))
	require.NoError(t, err, "it is not an error if there are no keys yet")
	assert.Empty(t, out)
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to other users")
	}
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "a.key")
	require.NoError(t, os.WriteFile(path, []byte("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"), 0o600))
	out, err = handOver("--dir", dir, "--to", "nobody")
	require.NoError(t, err)
	assert.Equal(t, "keys given to nobody: 1\n", out)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
}
