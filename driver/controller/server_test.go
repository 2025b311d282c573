package controller

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver"
)

// A lockedBuffer is a log that a server and a test share.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func serve(t *testing.T, s *driver.Server) (conn *grpc.ClientConn, logs *lockedBuffer, stop func() error) {
	t.Helper()
	logs = &lockedBuffer{}
	s.Log = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l, err := driver.Listen(filepath.Join(t.TempDir(), "csi.sock"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	conn, err = grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return conn, logs, func() error { cancel(); return <-ended }
}

func TestServer(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	b.withCredentials(t)
	conn, logs, stop := serve(t, &driver.Server{Identity: &driver.Identity{Name: driver.DefaultName, Version: "v1"}, Controller: b.Controller})
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, "csi.spdk.io", info.GetName())
	capabilities, err := csi.NewIdentityClient(conn).GetPluginCapabilities(t.Context(), &csi.GetPluginCapabilitiesRequest{})
	require.NoError(t, err)
	assert.Len(t, capabilities.GetCapabilities(), 2)
	probe, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{})
	require.NoError(t, err)
	assert.True(t, probe.GetReady().GetValue())
	_, err = csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	assert.Equal(t, codes.Unimplemented, status.Code(err), "this is no node")

	c := csi.NewControllerClient(conn)
	v, err := c.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	require.NoError(t, err)
	_, err = c.CreateVolume(t.Context(), b.request("pvc-1", 400*mib))
	assert.Equal(t, codes.AlreadyExists, status.Code(err))
	assert.ErrorContains(t, err, "but 419430400 or more are requested")
	require.NoError(t, stop())
	assert.Contains(t, logs.String(), "method=CreateVolume request_id=")
	assert.Contains(t, logs.String(), "code=AlreadyExists took=")
	assert.Contains(t, logs.String(), v.GetVolume().GetVolumeId()[:3])
	assert.NotContains(t, logs.String(), password)
}

func TestPanicsAreSurvived(t *testing.T) {
	conn, logs, stop := serve(t, &driver.Server{Identity: &driver.Identity{}, Controller: &Controller{}})
	for range 2 {
		_, err := csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"})
		require.Equal(t, codes.Internal, status.Code(err))
		assert.ErrorContains(t, err, "see its log")
	}
	require.NoError(t, stop())
	assert.Contains(t, logs.String(), "nil pointer")
}
