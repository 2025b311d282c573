package rpcpy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// variable is the environment variable that contains the path of the rpc.py script in an SPDK
// source tree.
const variable = "SPDK_RPC_PY"

// A testbed consists of rpc.py, a target, and a proxy with a local socket.
type testbed struct {
	*testing.T
	script string
	ports  []string // free ports, as environment variables
	target string   // socket
	local  string   // socket
	dir    string
	proxy  *proxy.Server
	config string
}

// newTestbed creates a testbed with the real target if one is given, and with a simulated target
// otherwise. It skips the test if rpc.py is not given.
func newTestbed(t *testing.T) *testbed {
	w := &testbed{T: t, script: os.Getenv(variable), dir: t.TempDir()}
	if w.script == "" {
		t.Skipf("set %s to scripts/rpc.py of an SPDK source tree to run this", variable)
	}
	if realtarget.Given() {
		w.target = realtarget.Socket(t)
	} else {
		target, err := spdktest.Start(spdktest.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, target.Close()) })
		w.target = target.Socket()
	}
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }() // all stay open until the end, so that they differ
		w.ports = append(w.ports, fmt.Sprintf("PORT%d=%d", i+1, l.Addr().(*net.TCPAddr).Port))
	}
	w.local, w.config = filepath.Join(w.dir, "rpc.sock"), filepath.Join(w.dir, "spdk-proxy.yaml")
	var err error
	w.proxy, err = proxy.NewServer(w.configure(os.Getuid(), "admin"), proxy.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	https, err := w.proxy.Listen()
	require.NoError(t, err)
	programs, err := w.proxy.ListenLocal()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- w.proxy.Serve(ctx, https, programs) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	return w
}

// configure returns a configuration that gives one user on this host a role.
func (w *testbed) configure(uid int, role string) *config.Config {
	hash, err := bcrypt.GenerateFromPassword([]byte("not a secret"), bcrypt.MinCost)
	require.NoError(w, err)
	require.NoError(w, os.WriteFile(w.config, fmt.Appendf(nil, `listen: 127.0.0.1:0
listen_unix: {path: rpc.sock}
tls: {insecure_plaintext: true}
target: {socket: %q}
users: [{name: user, password_hash: %q, local: {users: ["%d"]}, roles: [%s]}]
`, w.target, hash, uid, role), 0o600))
	c, err := config.Load(w.config)
	require.NoError(w, err)
	return c
}

func (w *testbed) release() rpcschema.Release {
	caller := spdkrpc.NewSocket(w.target)
	defer func() { _ = caller.Close() }()
	var version spdkrpc.FrameworkVersion
	require.NoError(w, caller.Call(w.Context(), "spdk_get_version", nil, &version))
	release, err := rpcschema.ParseRelease(version.Version)
	require.NoError(w, err)
	return release
}

// An outcome contains the output and the exit code of rpc.py.
type outcome struct {
	printed string
	code    int
}

// scriptTime limits one run of rpc.py, whose own timeout is one minute.
const scriptTime = 5 * time.Minute

// run runs rpc.py on a socket. A shell expands the arguments.
func (w *testbed) run(socket, line, stdin string) outcome {
	ctx, cancel := context.WithTimeout(w.Context(), scriptTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `exec "$SCRIPT" -s "$SOCKET" `+line)
	cmd.Env = append(os.Environ(), "SCRIPT="+w.script, "SOCKET="+socket, "DIR="+w.dir, "NQN=nqn.2026-11.io.spdkgate:rpcpy-", "IQN=iqn.2026-11.io.spdkgate:rpcpy-")
	cmd.Env = append(cmd.Env, w.ports...)
	cmd.Stdin = bytes.NewBufferString(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(w, err, &exit)
	}
	return outcome{string(out), cmd.ProcessState.ExitCode()}
}
