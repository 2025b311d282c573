package localsocket

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(path string) Place { return Place{Path: path, Mode: 0o660, UID: -1, GID: -1} }

func TestListenCreatesSocketWithPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	p := at(path)
	p.GID = os.Getgid()
	l, err := Listen(p)
	require.NoError(t, err)
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o660, info.Mode(), "whatever the umask")
	assert.Equal(t, path, l.Addr().String())

	client, err := net.Dial("unix", path)
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	peer, err := PeerOf(server)
	require.NoError(t, err)
	groups, err := os.Getgroups()
	require.NoError(t, err)
	assert.Equal(t, Peer{PID: int32(os.Getpid()), UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Groups: peer.Groups}, peer)
	assert.Len(t, peer.Groups, len(groups))

	assert.False(t, HungUp(server))
	require.NoError(t, client.(*net.UnixConn).CloseWrite())
	_, err = server.Read(make([]byte, 1))
	require.Error(t, err)
	assert.False(t, HungUp(server), "the process can still read")
	require.NoError(t, client.Close())
	assert.True(t, HungUp(server))

	_, err = Listen(at(path))
	require.ErrorContains(t, err, "another process may be listening")
	require.NoError(t, l.Close())
	_, err = os.Lstat(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}

func TestListenReplacesOnlyAStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	stale.SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())
	l, err := Listen(at(path))
	require.NoError(t, err)

	// Closing the earlier process's socket does not remove the new process's socket.
	require.NoError(t, os.Remove(path))
	successor, err := Listen(at(path))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = os.Lstat(path)
	require.NoError(t, err)
	require.NoError(t, successor.Close())

	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	require.NoError(t, os.WriteFile(file, []byte("data"), 0o600))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	for _, path := range []string{file, link, fifo, dir} {
		_, err := Listen(at(path))
		require.ErrorContains(t, err, "is not a socket")
		_, err = os.Lstat(path)
		require.NoError(t, err)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "data", string(text))
}

func TestUnsafeSocketPathsAreRejected(t *testing.T) {
	dir := t.TempDir()
	_, err := Listen(at(filepath.Join(dir, "no", "s")))
	require.ErrorIs(t, err, fs.ErrNotExist)

	open := filepath.Join(dir, "open")
	require.NoError(t, os.Mkdir(open, 0o700))
	require.NoError(t, os.Chmod(open, 0o777))
	_, err = Listen(at(filepath.Join(open, "s")))
	require.ErrorContains(t, err, "every user of this host may replace files")
	require.NoError(t, os.Chmod(open, 0o777|fs.ModeSticky))
	l, err := Listen(at(filepath.Join(open, "s")))
	require.NoError(t, err, "only the owner can replace a file there")
	require.NoError(t, l.Close())

	if os.Getuid() == 0 {
		t.Skip("root may give files to anybody")
	}
	p := at(filepath.Join(dir, "s"))
	p.UID = 0
	_, err = Listen(p)
	require.ErrorIs(t, err, fs.ErrPermission)
	_, err = os.Lstat(p.Path)
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing is left")
}

func TestPeerOfRequiresUnixSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	_, err = PeerOf(c)
	require.Error(t, err)
	assert.False(t, HungUp(c))
}
