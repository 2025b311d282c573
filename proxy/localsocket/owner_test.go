package localsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Listen sets the socket's owner, its group, both or neither.
func TestSocketGetsTheConfiguredOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files to other users")
	}
	const user, group = 64123, 64124 // no such user or group exists on the host
	for _, c := range []struct{ uid, gid, wantUID, wantGID int }{
		{-1, -1, os.Geteuid(), os.Getegid()}, {user, -1, user, os.Getegid()}, {-1, group, os.Geteuid(), group}, {user, group, user, group}, {0, 0, 0, 0},
	} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := Listen(Place{Path: path, Mode: 0o660, UID: c.uid, GID: c.gid})
		require.NoError(t, err)
		info, err := os.Lstat(path)
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		assert.Equal(t, []int{c.wantUID, c.wantGID}, []int{int(st.Uid), int(st.Gid)}, "%+v", c)
		assert.Equal(t, os.FileMode(0o660), info.Mode().Perm())
		require.NoError(t, l.Close())
		assert.NoFileExists(t, path)
	}
}

// control returns an error if its function fails, or if the connection is closed.
func TestSocketControlReportsErrors(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	open := func(fd int) net.Conn {
		f := os.NewFile(uintptr(fd), "socket")
		defer func() { _ = f.Close() }()
		c, err := net.FileConn(f)
		require.NoError(t, err)
		return c
	}
	a, b := open(fds[0]), open(fds[1])
	broken := errors.New("broken")
	require.ErrorIs(t, control(a, func(int) error { return broken }), broken)
	p, err := PeerOf(a)
	require.NoError(t, err)
	assert.Equal(t, []int{os.Getpid(), os.Geteuid(), os.Getegid()}, []int{int(p.PID), int(p.UID), int(p.GID)})
	assert.False(t, HungUp(a))
	require.NoError(t, b.(*net.UnixConn).CloseWrite())
	assert.False(t, HungUp(a), "it still reads")
	require.NoError(t, b.Close())
	assert.True(t, HungUp(a))
	require.NoError(t, a.Close())
	assert.False(t, HungUp(a), "nothing is known")
	require.Error(t, control(a, func(int) error { return nil }))
	_, err = PeerOf(a)
	require.Error(t, err)
	other, _ := net.Pipe()
	assert.False(t, HungUp(other))
	_, err = PeerOf(other)
	require.ErrorContains(t, err, "not a UNIX socket")
}
