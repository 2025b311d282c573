package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// While the process is stuck, the watchdog is not notified.
func TestWatchdogDetectsAStuckProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	t.Setenv("WATCHDOG_PID", "")
	require.NoError(t, os.Unsetenv("WATCHDOG_PID"))
	states := []error{errors.New("stuck"), nil}
	ctx, stop := context.WithCancel(t.Context())
	var log bytes.Buffer
	manager{slog.New(slog.NewTextHandler(&log, nil))}.watchdog(ctx, func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		assert.True(t, bounded)
		state := states[0]
		if states = states[1:]; len(states) == 0 {
			stop()
		}
		return state
	})
	require.NoError(t, socket.SetReadDeadline(time.Now().Add(time.Minute)))
	for _, want := range []string{"STATUS=not alive: stuck", "WATCHDOG=1"} {
		buf := make([]byte, 4096)
		size, err := socket.Read(buf)
		require.NoError(t, err)
		assert.Equal(t, want, string(buf[:size]))
	}
	assert.Contains(t, log.String(), `msg="not alive" error=stuck`)
}

// Only the service's user and root may reload the configuration and read profiles.
func TestSocketsAreInaccessibleToOthers(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	for _, name := range []string{controlName, debugName} {
		l, err := openSocket(name)
		require.NoError(t, err)
		info, err := os.Stat(socketPath("", name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.NoError(t, l.Close())
	}
}

func TestOnlyChangedContentCausesAReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(path, []byte("1"), 0o600))
	f := watchFiles([]string{path}, slog.New(slog.DiscardHandler))
	defer f.close()
	assert.False(t, f.changed())
	require.NoError(t, os.WriteFile(path, []byte("1"), 0o644))
	assert.False(t, f.changed())
	require.NoError(t, os.WriteFile(path, []byte("2"), 0o644))
	assert.True(t, f.changed())
	assert.False(t, f.changed())
	require.NoError(t, os.Remove(path))
	assert.True(t, f.changed())
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	assert.True(t, f.changed(), "an empty file differs from a missing one")
}

func TestEqualAddressesAreRecognized(t *testing.T) {
	for _, c := range []struct {
		configured, passed string
		want               bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "0.0.0.0:80", true},
		{":80", "[::]:80", true},
		{"[::]:80", "[::]:80", true},
		{"0.0.0.0:80", "[::]:80", false},
		{":80", "0.0.0.0:80", false},
		{"127.0.0.1:80", "0.0.0.0:80", false},
		{"0.0.0.0:80", "0.0.0.0:81", false},
	} {
		want, err := net.ResolveTCPAddr("tcp", c.configured)
		require.NoError(t, err)
		passed, err := net.ResolveTCPAddr("tcp", c.passed)
		require.NoError(t, err)
		assert.Equal(t, c.want, sameAddress(want, passed), c)
	}
	assert.False(t, sameAddress(&net.TCPAddr{}, &net.UnixAddr{}))
}
