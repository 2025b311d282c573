package target

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/localsocket"
)

// Before it sends any data, the proxy checks which user is listening at the socket.
func TestNothingIsSentToUntrustedUsers(t *testing.T) {
	f := newFake(t, "v26.05", echo)
	target := newTarget(t, Config{Socket: f.path})
	connect(t, target) // this process's own user

	received := make(chan int, 10)
	path := filepath.Join(t.TempDir(), "stranger.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n, _ := c.Read(make([]byte, 100))
			received <- n
			_ = c.Close()
		}
	}()
	stranger := newTarget(t, Config{Socket: path})
	own := uint32(os.Geteuid())
	stranger.checkPeer = requirePeer(own + 1) // as if this process ran as a different user
	_, err = stranger.Connect(t.Context(), "u")
	var down *DownError
	require.ErrorAs(t, err, &down)
	assert.ErrorIs(t, down.Err, errUntrustedPeer)
	assert.ErrorContains(t, err, nameOf(own))
	assert.ErrorContains(t, err, "target.peer_users")
	assert.Zero(t, <-received)
	state := look(t, stranger)
	assert.True(t, state.UntrustedPeer)
	assert.Equal(t, Unreachable, state.Phase)
	assert.ErrorIs(t, state.Err, errUntrustedPeer)
	assert.Zero(t, <-received)

	require.NoError(t, dialUnix(t, path, requirePeer(own+1, own)))
	require.NoError(t, dialUnix(t, path, checkPeer(nil)))
	require.Error(t, requirePeer(own)(&net.TCPConn{}), "a connection whose peer is unknown is refused")
}

func dialUnix(t *testing.T, path string, check func(net.Conn) error) error {
	c, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	return check(c)
}

func TestRootAndOwnUserAreTrusted(t *testing.T) {
	assert.Equal(t, []uint32{0, uint32(os.Geteuid()), 1001}, trustedUIDs([]uint32{1001}))
	assert.Equal(t, "user root (0)", nameOf(0))
	assert.Equal(t, "user 4294967294", nameOf(1<<32-2))
}

const listenerPath = "LISTEN_AS_ANOTHER_USER_AT"

// TestListenerProcess is not a test, but a process that TestPeerOfAnotherUserIsRefused runs as
// another user.
func TestListenerProcess(t *testing.T) {
	path := os.Getenv(listenerPath)
	if path == "" {
		t.Skip("is run by TestPeerOfAnotherUserIsRefused")
	}
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	_, _ = os.Stdout.WriteString("listening\n")
	_, _ = io.ReadAll(os.Stdin) // until the parent closes the pipe
	_ = l.Close()
}

func TestPeerOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process as another user")
	}
	const daemon = 2
	path := listener(t, daemon)
	refused := dialUnix(t, path, checkPeer(nil))
	require.ErrorIs(t, refused, errUntrustedPeer)
	manual, err := os.ReadFile("../../docs/target.md")
	require.NoError(t, err)
	assert.Contains(t, string(manual), strings.Replace(refused.Error(), nameOf(daemon), "user mallory (1001)", 1))
	require.NoError(t, dialUnix(t, path, checkPeer([]uint32{daemon})))
	_, err = newTarget(t, Config{Socket: path}).Connect(t.Context(), "u")
	require.ErrorContains(t, err, "(2)")

	// In a user namespace, all users outside the namespace appear as localsocket.Unmapped.
	refused = dialUnix(t, listener(t, localsocket.Unmapped), checkPeer([]uint32{localsocket.Unmapped}))
	require.ErrorIs(t, refused, errUntrustedPeer)
	require.ErrorContains(t, refused, "PrivateUsers=no")
}

// listener starts a process as this user, and returns the path of its socket.
func listener(t *testing.T, uid uint32) (path string) {
	dir, err := os.MkdirTemp("", "peer-") // unlike t.TempDir, every user can access it
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	program, path := filepath.Join(dir, "listener"), filepath.Join(dir, "spdk.sock")
	require.NoError(t, os.WriteFile(program, self, 0o755))
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestListenerProcess$")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), listenerPath+"="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return path
}
