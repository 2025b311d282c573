package driver

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/drivertest"
)

type stubNode struct{ csi.UnimplementedNodeServer }

func (stubNode) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "node-1"}, nil
}

// inFlight starts a server and a call that returns when release is closed. While the call is
// running, inFlight makes the server stop.
func inFlight(t *testing.T, s *Server) (call, stopped <-chan error, release chan struct{}) {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	s.Identity, s.Node = &Identity{}, stubNode{}
	s.Controller = stubController{deleteVolume: func() error { close(entered); <-release; return nil }}
	socket := filepath.Join(t.TempDir(), "csi.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	info, err := csi.NewNodeClient(conn).NodeGetInfo(t.Context(), &csi.NodeGetInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, "node-1", info.GetNodeId())
	done := make(chan error, 1)
	go func() {
		_, err := csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"})
		done <- err
	}()
	<-entered
	stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond, "no new calls are accepted")
	return done, ended, release
}

// A stopping server completes the calls that are already running.
func TestStopWaitsForCalls(t *testing.T) {
	logs := &drivertest.Log{}
	call, stopped, release := inFlight(t, &Server{Log: logs.Logger()})
	close(release)
	require.NoError(t, <-call)
	require.NoError(t, <-stopped)
	assert.NotContains(t, logs.String(), "cutting off")
}

// A stopping server cuts off calls that take longer than the drain time.
func TestStopCutsOffSlowCalls(t *testing.T) {
	logs := &drivertest.Log{}
	call, stopped, release := inFlight(t, &Server{Log: logs.Logger(), Drain: time.Millisecond})
	require.Equal(t, codes.Unavailable, status.Code(<-call))
	assert.Contains(t, logs.String(), "cutting off the calls in flight")
	close(release)
	require.NoError(t, <-stopped)
}

// The log lines of a call contain the id of its snapshot.
func TestLogContainsTheSnapshotID(t *testing.T) {
	r := &csi.DeleteSnapshotRequest{SnapshotId: "t0:1"}
	assert.Equal(t, "t0:1", volumeOf(r))
	assert.Equal(t, []any{"snapshot", "t0:1"}, subject(r))
	assert.Equal(t, "t0:2", volumeOf(&csi.DeleteVolumeRequest{VolumeId: "t0:2"}))
	assert.Empty(t, volumeOf(&csi.ProbeRequest{}))
	assert.Empty(t, subject(&csi.ProbeRequest{}))
}

// external-provisioner passes topology to the driver only if the driver reports the capability.
func TestTopologyCapabilityFollowsTheConfiguration(t *testing.T) {
	for _, topology := range []bool{true, false} {
		r, err := (&Identity{Topology: topology}).GetPluginCapabilities(t.Context(), nil)
		require.NoError(t, err)
		found := map[csi.PluginCapability_Service_Type]bool{}
		for _, c := range r.GetCapabilities() {
			found[c.GetService().GetType()] = true
		}
		assert.Equal(t, topology, found[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS])
		assert.True(t, found[csi.PluginCapability_Service_CONTROLLER_SERVICE] && found[csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE])
	}
}
