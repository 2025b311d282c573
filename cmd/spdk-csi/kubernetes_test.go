package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// lockedBuffer is a log that can be read while it is being written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// nodePlugin runs the node plugin until the test ends.
func nodePlugin(t *testing.T, dir string, log *lockedBuffer, args ...string) (stop context.CancelFunc, ended <-chan error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	cmd := command(log)
	cmd.SetArgs(append([]string{"--node", "--nodeid=node-1", "--endpoint=unix://" + filepath.Join(dir, "csi.sock")}, args...))
	go func() { done <- cmd.ExecuteContext(ctx) }()
	return cancel, done
}

// kubeletAt connects to a registration socket, as kubelet does, and checks the address that the
// driver registers.
func kubeletAt(t *testing.T, socket string) registerapi.RegistrationClient {
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", socket)
		return err == nil && c.Close() == nil
	}, time.Minute, 5*time.Millisecond)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return registerapi.NewRegistrationClient(conn)
}

// The node plugin registers itself with kubelet. It replaces the socket left behind by a killed
// plugin, and removes its own socket when it stops.
func TestNodePluginRegistersWithKubelet(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "csi.spdk.io-reg.sock")
	stale, err := net.Listen("unix", socket)
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, stale.Close())

	var log lockedBuffer
	stop, ended := nodePlugin(t, dir, &log, "--kubelet-registration-path="+filepath.Join(dir, "csi.sock"), "--kubelet-registration-dir="+dir)
	k := kubeletAt(t, socket)
	info, err := k.GetInfo(t.Context(), &registerapi.InfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, "csi.spdk.io", info.GetName())
	c, err := net.Dial("unix", info.GetEndpoint())
	require.NoError(t, err, "the driver listens before kubelet learns of it")
	require.NoError(t, c.Close())
	_, err = k.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	require.NoError(t, err)
	err = execute(t.Context(), "--node", "--nodeid=x", "--endpoint=unix://"+filepath.Join(dir, "other.sock"), "--kubelet-registration-path=/x/csi.sock", "--kubelet-registration-dir="+dir)
	require.ErrorContains(t, err, "another process listens")
	require.ErrorContains(t, err, "node-driver-registrar")
	stop()
	require.NoError(t, <-ended)
	assert.NoFileExists(t, socket)
}

// If kubelet refuses the driver, the plugin exits and reports kubelet's reason.
func TestDriverExitsWhenKubeletRefusesIt(t *testing.T) {
	dir := t.TempDir()
	var log lockedBuffer
	_, ended := nodePlugin(t, dir, &log, "--kubelet-registration-path=/wrong/csi.sock", "--kubelet-registration-dir="+dir)
	k := kubeletAt(t, filepath.Join(dir, "csi.spdk.io-reg.sock"))
	_, err := k.NotifyRegistrationStatus(t.Context(), &registerapi.RegistrationStatus{Error: "no such file or directory"})
	require.NoError(t, err)
	err = <-ended
	require.ErrorContains(t, err, "/wrong/csi.sock")
	require.ErrorContains(t, err, "no such file or directory")
	assert.NoFileExists(t, filepath.Join(dir, "csi.sock"))
}

// Without access to the Kubernetes API, the plugin serves requests, and logs only once which tasks
// it cannot perform.
func TestNodeStartsWithoutKubernetesAccess(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	var log lockedBuffer
	stop, ended := nodePlugin(t, dir, &log, "--startup-taint=csi.spdk.io/agent-not-ready", "--topology=a=b", "--topology-labels=a,topology.kubernetes.io/zone")
	require.Eventually(t, func() bool {
		return strings.Contains(log.String(), "serving CSI") && strings.Contains(log.String(), "startup taint is not removed")
	}, time.Minute, 5*time.Millisecond)
	assert.Equal(t, 1, strings.Count(log.String(), "topology.kubernetes.io/zone"), log.String())
	stop()
	require.NoError(t, <-ended)
}

func TestInvalidKubernetesFlagsAreRejected(t *testing.T) {
	for want, args := range map[string][]string{
		"need --node":      {"--controller", "--startup-taint=x"},
		"use nvme-tcp":     {"--node", "--nodeid=a", "--required-transports=tcp"},
		"not an absolute":  {"--node", "--nodeid=a", "--kubelet-registration-path=csi.sock", "--endpoint=unix://" + filepath.Join(t.TempDir(), "x")},
		"plugins_registry": {"--node", "--nodeid=a", "--kubelet-registration-path=/x", "--kubelet-registration-dir=/nonexistent", "--endpoint=unix://" + filepath.Join(t.TempDir(), "x")},
	} {
		require.ErrorContains(t, execute(t.Context(), args...), want)
	}
}

// Without access to the API, the drain hook exits immediately with an error, which kubelet shows in
// an event.
func TestDrainHookFailsWithoutKubernetesAccess(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("NODE_ID", "")
	require.ErrorContains(t, execute(t.Context(), "drain-hook"), "$NODE_ID")
	t.Setenv("NODE_ID", "node-1")
	var errors bytes.Buffer
	cmd := command(&bytes.Buffer{})
	cmd.SetArgs([]string{"drain-hook"})
	cmd.SetErr(&errors)
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), "no access to the Kubernetes API")
}
