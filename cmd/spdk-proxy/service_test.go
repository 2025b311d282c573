package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// notifications receives the messages sent to systemd.
type notifications struct {
	t        *testing.T
	path     string
	messages chan string
}

// listenForNotifications reads messages as they arrive, because the kernel queues only ten.
func listenForNotifications(t *testing.T) *notifications {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	n := &notifications{t, path, make(chan string, 10_000)}
	go func() {
		for buf := make([]byte, 4096); ; {
			size, err := socket.Read(buf)
			if err != nil {
				return
			}
			n.messages <- string(buf[:size])
		}
	}()
	return n
}

// next returns the next notification with this prefix.
func (n *notifications) next(want string) string {
	n.t.Helper()
	for patience := time.After(long); ; {
		select {
		case message := <-n.messages:
			if strings.HasPrefix(message, want) {
				return message
			}
		case <-patience:
			require.Fail(n.t, "no notification", want)
		}
	}
}

func change(t *testing.T, path, old, replacement string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(text), old)
	next := path + ".new"
	require.NoError(t, os.WriteFile(next, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600))
	require.NoError(t, os.Rename(next, path))
}

func TestSystemdIsNotified(t *testing.T) {
	n := listenForNotifications(t)
	config := writeConfig(t, target(t).Socket(), "")
	d := start(t, []string{"NOTIFY_SOCKET=" + n.path, "WATCHDOG_USEC=300000"}, "serve", "--config", config)
	n.next("READY=1")
	n.next("WATCHDOG=1")
	n.next("WATCHDOG=1")
	d.hangUp()
	n.next("RELOADING=1\nMONOTONIC_USEC=")
	n.next("READY=1\nSTATUS=")
	require.NoError(t, os.WriteFile(config, []byte("listn: x\n"), 0o600))
	d.hangUp()
	assert.Contains(t, n.next("READY=1\nSTATUS=reload refused, the old configuration remains in effect"), "listn is not a key")
	d.stop()
	n.next("STOPPING=1")
}

func TestReloadReportsItsOutcome(t *testing.T) {
	runtime := t.TempDir()
	// This file simulates the socket that a killed process leaves behind.
	require.NoError(t, os.WriteFile(filepath.Join(runtime, "control"), nil, 0o600))
	path := writeConfig(t, target(t).Socket(), "")
	d := start(t, []string{"RUNTIME_DIRECTORY=" + runtime}, "serve", "--config", path)
	info, err := os.Stat(filepath.Join(runtime, "control"))
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	reload := func() outcome {
		cmd := command(t.Context(), "reload")
		cmd.Env = append(cmd.Env, "RUNTIME_DIRECTORY="+runtime)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return outcome{stderr: string(out), code: cmd.ProcessState.ExitCode()}
	}
	assert.Equal(t, outcome{}, reload())

	change(t, path, "spdk_kill_instance", "no_such_method")
	o := reload()
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "the old configuration remains in effect")
	assert.Contains(t, o.stderr, "no_such_method")

	change(t, path, "no_such_method", "bdev_get_bdevs")
	assert.Equal(t, outcome{}, reload())

	// The changed configuration is valid, but listen must not change while the proxy is running.
	change(t, path, "127.0.0.1:0", "127.0.0.1:9999")
	o = reload()
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "listen has changed: restart the proxy to apply it")

	d.stop()
	o = reload()
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "check that the service runs (systemctl status spdk-proxy); send SIGHUP to a proxy that systemd did not start")
}

// A change to a file named by the configuration causes a reload, however the file is replaced.
func TestChangedFilesCauseAReload(t *testing.T) {
	path := writeConfig(t, target(t).Socket(), "")
	dir := filepath.Dir(path)
	// Kubernetes mounts a file as a link to another link, which it replaces.
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "v1"), 0o700))
	require.NoError(t, os.Rename(filepath.Join(dir, "hash"), filepath.Join(dir, "v1/hash")))
	require.NoError(t, os.Symlink("v1", filepath.Join(dir, "data")))
	require.NoError(t, os.Symlink("data/hash", filepath.Join(dir, "hash")))
	d := start(t, nil, "serve", "--config", path)
	call := func() int {
		return run(t, "", "call", "--url", d.url, "--user", "admin", "--ca", filepath.Join(dir, "tls.crt"), "spdk_get_version").code
	}
	require.Zero(t, call())

	change(t, path, "spdk_kill_instance", "spdk_get_version")
	d.waitFor(`"msg":"reloaded","cause":"files have changed"`)
	assert.Equal(t, exitDenied, call())

	change(t, path, "[admin]", "[nobody]")
	d.waitFor("reload refused, the old configuration remains in effect")
	assert.Equal(t, exitDenied, call())

	change(t, path, "[nobody]", "[admin]")
	change(t, path, "spdk_get_version", "spdk_kill_instance")
	d.waitForTimes(`"msg":"reloaded"`, 2)
	require.Zero(t, call())

	require.NoError(t, os.Mkdir(filepath.Join(dir, "v2"), 0o700))
	other := run(t, "another password\n", "hash-password").stdout
	require.NoError(t, os.WriteFile(filepath.Join(dir, "v2/hash"), []byte(other), 0o600))
	require.NoError(t, os.Symlink("v2", filepath.Join(dir, "data.new")))
	require.NoError(t, os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")))
	d.waitForTimes(`"msg":"reloaded"`, 3)
	assert.Equal(t, exitDenied, call(), "the password has changed")
}

// startActivated starts the proxy with sockets that remain open, as systemd does.
func startActivated(t *testing.T, config string, sockets ...net.Listener) *served {
	d := &served{t: t, cmd: command(context.Background(), "serve", "--config", config)}
	d.cmd.Path, d.cmd.Args = "/bin/sh", append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh", os.Args[0]}, d.cmd.Args[1:]...)
	for _, l := range sockets {
		f, err := l.(interface{ File() (*os.File, error) }).File()
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		d.cmd.ExtraFiles = append(d.cmd.ExtraFiles, f)
	}
	d.cmd.Env = append(d.cmd.Env, "LISTEN_FDS="+string(rune('0'+len(sockets))))
	d.cmd.Stdout, d.cmd.Stderr = &d.log, &d.log
	require.NoError(t, d.cmd.Start())
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); _ = d.cmd.Wait() })
	return d
}

func systemdSocket(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Clients that connect during a restart wait until they are served.
func TestConnectionsAreAcceptedDuringRestart(t *testing.T) {
	l := systemdSocket(t)
	path := writeConfig(t, target(t).Socket(), "")
	change(t, path, "127.0.0.1:0", l.Addr().String())
	ca := filepath.Join(filepath.Dir(path), "tls.crt")
	d := startActivated(t, path, l)
	d.waitFor("serving")

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				o := run(t, "", "call", "--url", "https://"+l.Addr().String(), "--user", "admin", "--ca", ca, "spdk_get_version")
				mu.Lock()
				outcomes[o.stderr]++
				mu.Unlock()
			}
		})
	}
	for range 3 {
		assert.Zero(t, d.stop())
		d = startActivated(t, path, l)
		d.waitFor("serving")
	}
	stop()
	wg.Wait()
	assert.NotZero(t, outcomes[""])
	assert.Len(t, outcomes, 1, "%v", outcomes)
}

func TestSocketMustMatchTheConfiguration(t *testing.T) {
	l, other := systemdSocket(t), systemdSocket(t)
	path := writeConfig(t, target(t).Socket(), "")
	d := startActivated(t, path, l)
	d.waitFor("listen in the configuration is 127.0.0.1:0")
	_ = d.cmd.Wait()
	assert.Equal(t, exitFailed, d.cmd.ProcessState.ExitCode())

	change(t, path, "127.0.0.1:0", l.Addr().String())
	d = startActivated(t, path, l, other)
	d.waitFor("systemd's socket is at " + other.Addr().String())
	_ = d.cmd.Wait()
	assert.Equal(t, exitFailed, d.cmd.ProcessState.ExitCode())

	d = startActivated(t, path, l, l)
	d.waitFor("several sockets of one kind")
	_ = d.cmd.Wait()
	assert.Equal(t, exitFailed, d.cmd.ProcessState.ExitCode())
}

// On the command line, check-config finds the secrets in the same place as the service.
func TestCheckConfigReadsTheServicesSecrets(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	path := writeConfig(t, "/s", "")
	dir := filepath.Dir(path)
	change(t, path, "password_hash_file: hash", "password_hash_file: $CREDENTIALS_DIRECTORY/secrets_hash")
	for _, args := range [][]string{{"check-config", path}, {"serve", "--config", path}} {
		o := run(t, "", args...)
		assert.Equal(t, exitFailed, o.code)
		assert.Contains(t, o.stderr, "$CREDENTIALS_DIRECTORY/secrets_hash: systemd sets $CREDENTIALS_DIRECTORY, and only for the service")
		assert.Contains(t, o.stderr, "create hash in the directory of secrets (--secrets; by default secrets beside the configuration)")
		assert.Contains(t, o.stderr, "to serve without systemd, set the key to the path of the file")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "secrets"), 0o700))
	assert.Contains(t, run(t, "", "check-config", path).stderr, "secrets_hash: file does not exist: create hash in the directory of secrets")
	require.NoError(t, os.Rename(filepath.Join(dir, "hash"), filepath.Join(dir, "secrets/hash")))
	assert.Zero(t, run(t, "", "check-config", path).code)
	require.NoError(t, os.Rename(filepath.Join(dir, "secrets"), filepath.Join(dir, "else")))
	assert.Zero(t, run(t, "", "check-config", path, "--secrets", filepath.Join(dir, "else")).code)

	// Setting CREDENTIALS_DIRECTORY manually does not help, because systemd also renames the files.
	t.Setenv("CREDENTIALS_DIRECTORY", filepath.Join(dir, "else"))
	for _, args := range [][]string{{"check-config", path}, {"serve", "--config", path}} {
		o := run(t, "", args...)
		assert.Equal(t, exitFailed, o.code)
		assert.Contains(t, o.stderr, "$CREDENTIALS_DIRECTORY is set to "+filepath.Join(dir, "else")+", which has hash: systemd would pass that file as secrets_hash")
		assert.Contains(t, o.stderr, "`spdk-proxy check-config --secrets "+filepath.Join(dir, "else")+"`")
	}
	change(t, path, "password_hash_file: $CREDENTIALS_DIRECTORY/secrets_hash", "password_hash_file: else/hash")
	assert.Zero(t, start(t, nil, "serve", "--config", path).stop(), "the path of the file")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestGrantSocketGivesTheGroupAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spdk.sock")
	grant := func(args ...string) outcome {
		return run(t, "", append([]string{"grant-socket", path}, args...)...)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may give a file to a group that it is not in")
	}
	const group = "12345"
	assert.Equal(t, outcome{}, grant("--group", group), "nothing to do yet")
	o := grant("--group", group, "--wait", "1ms")
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "check that spdk_tgt runs and listens there")
	assert.Contains(t, grant("--group", "no such group").stderr, "sysusers.d")

	// SPDK starts while the command is waiting, is killed, and starts again. The command ignores
	// the socket left behind by the killed process.
	for range 2 {
		waiting := command(t.Context(), "grant-socket", path, "--group", group, "--wait", long.String())
		waiting.Stderr = os.Stderr
		require.NoError(t, waiting.Start())
		require.NoError(t, os.RemoveAll(path)) // as SPDK does
		l, err := net.Listen("unix", path)
		require.NoError(t, err)
		require.NoError(t, waiting.Wait())
		info, err := os.Stat(path)
		require.NoError(t, err)
		assert.EqualValues(t, 0o660, info.Mode().Perm())
		assert.EqualValues(t, 12345, gid(info))
		assert.Equal(t, outcome{}, grant("--group", group), "again")
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		require.NoError(t, l.Close())
		o := grant("--group", group, "--wait", "1ms")
		assert.Equal(t, exitFailed, o.code)
		assert.Contains(t, o.stderr, "check that spdk_tgt runs and listens there")
	}
	require.NoError(t, os.Remove(path))

	// The command must not change any of the following objects, which other users can create in a
	// world-writable directory.
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, nil, 0o600))
	for name, put := range map[string]func() error{
		"a link":                   func() error { return os.Symlink(secret, path) },
		"a file":                   func() error { return os.Link(secret, path) },
		"another process's socket": func() error { return foreignSocket(t, path) },
		"a dangling link":          func() error { return os.Symlink("/none", path) },
	} {
		require.NoError(t, put(), name)
		o := grant("--group", group)
		assert.Equal(t, exitFailed, o.code, name)
		assert.Contains(t, o.stderr, "Nothing was changed", name)
		require.NoError(t, os.Remove(path))
	}
	info, err := os.Stat(secret)
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	assert.Zero(t, gid(info))
}

func gid(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Gid }

func foreignSocket(t *testing.T, path string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = l.Close() })
	return os.Chown(path, 12345, 12345)
}
