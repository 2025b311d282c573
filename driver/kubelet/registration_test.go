package kubelet

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// kubelet connects to a registration socket, as kubelet does when the socket appears in its
// directory.
func kubelet(t *testing.T, socket string) registerapi.RegistrationClient {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return registerapi.NewRegistrationClient(conn)
}

func serve(t *testing.T, r Registration) (socket string, ended <-chan error, stop func()) {
	dir := t.TempDir()
	socket = SocketPath(dir, r.Driver)
	assert.Equal(t, filepath.Join(dir, "csi.spdk.io-reg.sock"), socket)
	listen := func() (net.Listener, error) { return net.Listen("unix", socket) }
	l, err := listen()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l, listen) }()
	return socket, done, cancel
}

func registration(log *strings.Builder) Registration {
	return Registration{Driver: "csi.spdk.io", Endpoint: "/var/lib/kubelet/plugins/csi.spdk.io/csi.sock", Log: slog.New(slog.NewTextHandler(log, nil))}
}

func TestDriverIsRegistered(t *testing.T) {
	var log strings.Builder
	r := registration(&log)
	require.NoError(t, r.Check())
	socket, ended, stop := serve(t, r)
	k := kubelet(t, socket)
	info, err := k.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, "CSIPlugin", info.GetType())
	assert.Equal(t, r.Driver, info.GetName())
	assert.Equal(t, r.Endpoint, info.GetEndpoint())
	assert.Equal(t, []string{"1.0.0"}, info.GetSupportedVersions())
	for range 2 { // kubelet registers again when it restarts
		_, err = k.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
		require.NoError(t, err)
	}
	stop()
	require.NoError(t, <-ended)
	_, err = os.Lstat(socket)
	require.ErrorIs(t, err, os.ErrNotExist, "kubelet unregisters the driver when the socket disappears")
	assert.Contains(t, log.String(), "kubelet has registered the driver")
}

func TestRefusedRegistrationEndsTheDriver(t *testing.T) {
	var log strings.Builder
	socket, ended, _ := serve(t, registration(&log))
	k := kubelet(t, socket)
	_, err := k.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "plugin registration failed with err: no such file"})
	require.NoError(t, err, "kubelet gets its response")
	err = <-ended
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "no such file")
	require.ErrorContains(t, err, "/var/lib/kubelet/plugins/csi.spdk.io/csi.sock")
	assert.NoFileExists(t, socket)
}

func TestEndpointIsAPathOnTheNode(t *testing.T) {
	for _, endpoint := range []string{"", "csi.sock", "unix:///csi/csi.sock", "/csi/../csi.sock"} {
		err := Registration{Driver: "csi.spdk.io", Endpoint: endpoint}.Check()
		require.ErrorContains(t, err, "/var/lib/kubelet/plugins/csi.spdk.io/csi.sock", endpoint)
	}
}

// Serve removes the registration socket before it returns, even if it is canceled while it is
// starting.
func TestCanceledRegistrationLeavesNoSocket(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var log strings.Builder
	r := registration(&log)
	for range 200 {
		socket := SocketPath(t.TempDir(), r.Driver)
		l, err := net.Listen("unix", socket)
		require.NoError(t, err)
		require.NoError(t, r.Serve(ctx, l, nil))
		require.NoFileExists(t, socket)
	}
}

// If kubelet's directory is cleaned up, the driver recreates its socket, so that kubelet can find
// it. The driver does not remove a file of another process.
func TestRemovedSocketIsRecreated(t *testing.T) {
	var log strings.Builder
	r := registration(&log)
	r.interval = time.Millisecond
	socket, ended, stop := serve(t, r)
	for range 2 {
		_, err := kubelet(t, socket).GetInfo(t.Context(), &registerapi.InfoRequest{})
		require.NoError(t, err)
		require.NoError(t, os.Remove(socket))
		require.Eventually(t, func() bool {
			c, err := net.Dial("unix", socket)
			return err == nil && c.Close() == nil
		}, time.Minute, time.Millisecond)
	}
	stop()
	require.NoError(t, <-ended)
	assert.NoFileExists(t, socket)

	socket, ended, _ = serve(t, r)
	_, err := kubelet(t, socket).GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "other.sock")
	l, err := net.Listen("unix", other)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Rename(other, socket))
	require.ErrorContains(t, <-ended, "register with kubelet again")
	c, err := net.Dial("unix", socket)
	require.NoError(t, err, "the other process still listens")
	require.NoError(t, c.Close())
}
