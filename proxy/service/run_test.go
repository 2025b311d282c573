package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// A running is a running service, with the notifications that it has sent to systemd.
type running struct {
	t      *testing.T
	file   string
	listen string
	ended  chan error
	mu     sync.Mutex
	sent   []string
}

const hashOfNobody = "$2a$04$abcdefghijklmnopqrstuuMZq0Xz9Yb2yT8sJ6aFZpG8n7vKQ5xWy"

func (r *running) write(level string) {
	text := fmt.Sprintf("listen: %s\ntls: {insecure_plaintext: true}\ntarget: {socket: %s}\nlog: {level: %s}\nusers:\n- {name: admin, password_hash: '%s', roles: [admin]}\n",
		r.listen, filepath.Join(filepath.Dir(r.file), "spdk.sock"), level, hashOfNobody)
	require.NoError(r.t, os.WriteFile(r.file+".new", []byte(text), 0o600))
	require.NoError(r.t, os.Rename(r.file+".new", r.file))
}

func (r *running) count(prefix string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sent {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (r *running) eventually(prefix string, n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.count(prefix) >= n }, time.Minute, time.Millisecond, "%s %d times", prefix, n)
}

func startService(t *testing.T, load bool) *running {
	t.Helper()
	dir := t.TempDir()
	notify := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", notify)
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	t.Setenv("WATCHDOG_USEC", "")
	r := &running{t: t, file: filepath.Join(dir, "spdk-proxy.yaml"), ended: make(chan error, 1)}
	go func() {
		buf := make([]byte, 4096)
		for {
			size, err := socket.Read(buf)
			if err != nil {
				return
			}
			r.mu.Lock()
			r.sent = append(r.sent, string(buf[:size]))
			r.mu.Unlock()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.listen = free.Addr().String()
	require.NoError(t, free.Close())
	r.write("info")
	read := func() (*config.Config, error) { return config.Load(r.file) }
	c, err := read()
	require.NoError(t, err)
	if !load {
		read = nil
	}
	go func() { r.ended <- Run("v1", c, read) }()
	r.eventually("READY=1", 1)
	return r
}

func (r *running) end() {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	require.NoError(r.t, <-r.ended)
	r.eventually("STOPPING=1", 1)
}

// A service starts, reloads its configuration in each of the three ways, rejects an invalid
// configuration, returns profiles, and ends.
func TestServiceStartsReloadsAndEnds(t *testing.T) {
	r := startService(t, true)
	resp, err := http.Get("http://" + r.listen + "/healthz")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	require.NoError(t, Reload(""))
	r.eventually("RELOADING=1\nMONOTONIC_USEC=", 1)
	r.eventually("READY=1\nSTATUS=", 1)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	r.eventually("READY=1\nSTATUS=", 2)
	r.write("debug") // the service detects the change
	r.eventually("READY=1\nSTATUS=", 3)
	r.write("loud")
	require.ErrorContains(t, Reload(""), "refused, the old configuration remains in effect")
	r.eventually("READY=1\nSTATUS=reload refused, the old configuration remains in effect: ", 1)
	r.write("info")
	require.NoError(t, Reload(""))

	for name, says := range map[string]string{"goroutines": "goroutine ", "heap": "\x1f\x8b", "allocs": "\x1f\x8b", "trace": "go "} {
		var text bytes.Buffer
		require.NoError(t, Profile(t.Context(), "", name, 1, &text), name)
		assert.True(t, strings.HasPrefix(text.String(), says), "%s: %.20q", name, text.String())
	}
	require.ErrorContains(t, Profile(t.Context(), "", "secrets", 1, nil), "use one of allocs, cpu, goroutines, heap, trace")
	require.NoError(t, pprof.StartCPUProfile(&bytes.Buffer{}))
	require.ErrorContains(t, Profile(t.Context(), "", "cpu", 1, &bytes.Buffer{}), "the service responded with 500 Internal Server Error: Could not enable CPU profiling")
	pprof.StopCPUProfile()
	var text bytes.Buffer
	require.NoError(t, Profile(t.Context(), "", "cpu", 1, &text))
	assert.True(t, strings.HasPrefix(text.String(), "\x1f\x8b"))
	require.ErrorContains(t, Profile(t.Context(), "", "goroutines", 1, fullWriter{}), "the profile is incomplete")
	r.end()
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// Without a configuration file, for example when the proxy replaces rpc_http_proxy.py, a reload is
// refused.
func TestReloadWithoutAFileIsRefused(t *testing.T) {
	r := startService(t, false)
	require.ErrorContains(t, Reload(""), errNoFile.Error())
	r.end()
	assert.Zero(t, r.count("RELOADING"))
}

// A service does not start if it cannot open one of its sockets.
func TestServiceRequiresAllItsSockets(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	c := config.Default()
	c.TLS.InsecurePlaintext = true
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	c.Listen = taken.Addr().String()
	c.Users = []config.User{{Name: "admin", PasswordHash: hashOfNobody, Roles: []string{"admin"}}}
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	require.ErrorIs(t, Run("v1", &c, nil), syscall.EADDRINUSE)
	c.Listen = "127.0.0.1:0"
	for _, name := range []string{controlName, debugName} {
		dir := t.TempDir()
		t.Setenv("RUNTIME_DIRECTORY", dir)
		// prevents the creation of the socket
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "x"), 0o700))
		require.ErrorContains(t, Run("v1", &c, nil), name+" socket")
	}
	c.Users = nil
	require.Error(t, Run("v1", &c, nil))
}

// A missing runtime directory is not an error, but then there are no control and debug sockets.
func TestServiceRunsWithoutARuntimeDirectory(t *testing.T) {
	t.Setenv("RUNTIME_DIRECTORY", "")
	requests, err := openControl(slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	assert.Nil(t, requests)
	require.NoError(t, openDebug())
	assert.Equal(t, "/run/spdk-proxy/control", socketPath("", controlName))
}

// The proxy serves systemd's sockets only if their address and path match the configuration.
func TestSystemdSocketsMustMatchTheConfiguration(t *testing.T) {
	https, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = https.Close() }()
	path := filepath.Join(t.TempDir(), "rpc.sock")
	local, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer func() { _ = local.Close() }()
	take := func(l *listeners, from interface{ File() (*os.File, error) }, want places) error {
		f, err := from.File()
		require.NoError(t, err)
		return l.take(f, want)
	}
	var got listeners
	want := places{https.Addr().String(), path}
	require.NoError(t, take(&got, https.(*net.TCPListener), want))
	require.NoError(t, take(&got, local.(*net.UnixListener), want))
	assert.Equal(t, https.Addr(), got.https.Addr())
	assert.Equal(t, path, got.local.Addr().String())
	first, more := got.serving()
	assert.Equal(t, got.https, first)
	assert.Equal(t, []net.Listener{got.local}, more)
	for _, again := range []interface{ File() (*os.File, error) }{https.(*net.TCPListener), local.(*net.UnixListener)} {
		require.ErrorContains(t, take(&got, again, want), "several sockets of one kind")
	}
	got.close()
	_, err = os.Lstat(path)
	require.NoError(t, err, "the socket is systemd's")
	_, more = listeners{https: https}.serving()
	assert.Empty(t, more)

	for says, want := range map[string]places{
		"listen in the configuration is 127.0.0.1:1": {"127.0.0.1:1", path},
		"http-or-so": {"127.0.0.1:http-or-so", path},
		`listen_unix.path in the configuration is "/run/x"`: {https.Addr().String(), "/run/x"},
		`listen_unix.path in the configuration is ""`:       {https.Addr().String(), ""},
	} {
		var none listeners
		require.ErrorContains(t, errors.Join(take(&none, https.(*net.TCPListener), want), take(&none, local.(*net.UnixListener), want)), says)
		none.close()
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	require.ErrorContains(t, new(listeners).take(file, want), "systemd's socket")
}

func TestChangedFilesAreDetectedWithoutAWatcher(t *testing.T) {
	f := watchFiles(nil, slog.New(slog.DiscardHandler))
	defer f.close()
	f.watch([]string{"/etc/hostname"})
	assert.Nil(t, f.events())
	assert.Nil(t, f.lost())
	f.changed() // records the current contents
	assert.False(t, f.changed())
}

// A directory is no longer watched once it contains none of the configuration's files.
func TestUnusedDirectoriesAreNotWatched(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(two, "real"), nil, 0o600))
	require.NoError(t, os.Symlink(filepath.Join(two, "real"), filepath.Join(one, "link")))
	f := watchFiles([]string{filepath.Join(one, "link")}, slog.New(slog.DiscardHandler))
	defer f.close()
	assert.ElementsMatch(t, []string{one, two}, f.watcher.WatchList(), "the directory of the link, and that of its target")
	f.watch([]string{filepath.Join(two, "real")})
	assert.Equal(t, []string{two}, f.watcher.WatchList())
	f.touch()
	first := f.settled
	f.touch()
	assert.Equal(t, first, f.settled, "later events do not postpone the comparison")
	var log bytes.Buffer
	f.log = slog.New(slog.NewTextHandler(&log, nil))
	f.watch([]string{filepath.Join(one, "missing", "x")})
	assert.Contains(t, log.String(), "reload by hand")
}

func TestReloadWithoutAServiceFails(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", dir)
	require.ErrorContains(t, Reload(""), "check that the service runs")
	l, err := net.Listen("unix", socketPath("", controlName))
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = c.Close()
		}
	}()
	require.ErrorContains(t, Reload(""), "the service ended")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = Profile(ctx, "", "heap", 0, &bytes.Buffer{})
	require.True(t, errors.Is(err, context.Canceled), err)
}
