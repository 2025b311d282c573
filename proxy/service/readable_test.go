package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With umask 077, only root can read a new file. A check-config that runs as root can read it, so
// it would otherwise not notice that the service cannot.
func TestFilesUnreadableForServiceAreReported(t *testing.T) {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	const other = 12345
	base := t.TempDir()
	require.NoError(t, os.Chmod(base, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(base), 0o755))
	dir := filepath.Join(base, "etc")
	require.NoError(t, os.Mkdir(dir, 0o750))
	file := filepath.Join(dir, "backup.tokens")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	link := filepath.Join(base, "link")
	require.NoError(t, os.Symlink(file, link))
	unreadable := func(uid, gid uint32) []string { return unreadableFiles([]string{file}, "", uid, gid) }

	assert.Equal(t, []string{file + ": the service's user spdk-proxy cannot read this file: chgrp spdk-proxy " + file + " && chmod g+r " + file}, unreadable(other, gid))
	assert.Len(t, unreadableFiles([]string{link}, "", other, gid), 1)
	assert.Empty(t, unreadable(uid, other), "its owner")
	assert.Empty(t, unreadableFiles([]string{file}, dir, other, gid), "a credential")
	assert.Empty(t, unreadableFiles([]string{filepath.Join(dir, "none")}, "", other, gid))
	assert.True(t, permitted(filepath.Join(dir, "none"), 4, other, other), "a missing file is reported elsewhere")

	require.NoError(t, os.Chmod(file, 0o640))
	assert.NotContains(t, strings.Join(unreadable(other, gid), "\n"), "cannot read", "its group")
	assert.Len(t, unreadable(other, other), 1)

	require.NoError(t, os.Chmod(file, 0o644))
	assert.Equal(t, []string{file + ": the service's user spdk-proxy cannot enter the directory " + dir + ": move the file to /etc/spdk-proxy, or permit that"}, unreadable(other, other))
	require.NoError(t, os.Chmod(dir, 0o711))
	assert.NotContains(t, strings.Join(unreadable(other, other), "\n"), "the directory "+dir+":")
}
