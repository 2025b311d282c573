package conformance

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/spdkgate/spdkgate/proxy"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/conformance"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

func TestSimulatedTargetConforms(t *testing.T) {
	for name, opts := range map[string]spdktest.Options{
		"v24.01":         {Release: rpcschema.MustRelease("v24.01")},
		"v26.05":         {Release: rpcschema.MustRelease("v26.05")},
		"v26.05-startup": {Release: rpcschema.MustRelease("v26.05"), WaitForRPC: true},
		"v24.01-polled":  {Release: rpcschema.MustRelease("v24.01"), Poll: 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, err := spdktest.Start(opts)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, target.Close()) })
			throughAll(t, target.Socket(), t.TempDir())
		})
	}
}

// TestRealTargetConforms runs the suite on the target at SPDK_SOCK. The target must be on this
// host, and nothing else may use it during the test.
func TestRealTargetConforms(t *testing.T) {
	throughAll(t, realtarget.Socket(t), t.TempDir())
}

// throughAll runs the suite through each path of a proxy, one at a time.
func throughAll(t *testing.T, socket, targetDir string) {
	t.Run("https", func(t *testing.T) { through(t, socket, targetDir, false) })
	t.Run("local", func(t *testing.T) { through(t, socket, targetDir, true) })
}

const (
	password   = "not a secret"
	configYAML = `listen: 127.0.0.1:0
listen_unix: {path: rpc.sock}
tls: {self_signed_dir: %q}
target: {socket: %q}
users: [{name: all, password_hash: %q, local: {users: ["%d"]}, roles: [admin]}]
`
)

// through runs the suite through a proxy, over HTTPS or through its local socket, as a user who may
// call all methods.
func through(t *testing.T, socket, targetDir string, local bool) {
	https, programs := serveProxy(t, socket)
	caller := https
	if local {
		caller = programs
	}
	conformance.Run(t, conformance.Env{Caller: caller, Dir: targetDir, Validates: true})
}

// serveProxy starts a proxy for the target at a socket. It returns two callers for a user who may
// call all methods: one over HTTPS, and one through the proxy's local socket.
func serveProxy(t *testing.T, socket string) (https, local spdkrpc.Caller) {
	dir := t.TempDir()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	path := filepath.Join(dir, "spdk-proxy.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, configYAML, filepath.Join(dir, "tls"), socket, hash, os.Getuid()), 0o600))
	c, err := config.Load(path)
	require.NoError(t, err)
	server, err := proxy.NewServer(c, proxy.Options{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	listener, err := server.Listen()
	require.NoError(t, err)
	programs, err := server.ListenLocal()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener, programs) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	cert, err := os.ReadFile(filepath.Join(dir, "tls", "tls.crt"))
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(cert))
	https, err = spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{
		URL: "https://" + listener.Addr().String() + "/", Username: "all", Password: password, CA: authorities,
	})
	require.NoError(t, err)
	socketCaller := spdkrpc.NewSocket(programs.Addr().String())
	t.Cleanup(func() { _ = socketCaller.Close() })
	socketCaller.SetLimits(jsonrpc.LimitsV2605)
	return https, socketCaller
}
