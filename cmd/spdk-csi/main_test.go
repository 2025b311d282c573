package main

import (
	"bytes"
	"context"
	"net"
	"os"
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
)

func execute(ctx context.Context, args ...string) error {
	cmd := command(&bytes.Buffer{})
	cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the test binary's arguments
	cmd.SetOut(&bytes.Buffer{})
	return cmd.ExecuteContext(ctx)
}

func TestInvalidFlagsAreRejected(t *testing.T) {
	t.Setenv("SPDKCSI_CONFIG", filepath.Join(t.TempDir(), "config.json"))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"neither":      {nil, "--controller, --node or both, or --snapshot-metadata"},
		"metadata":     {[]string{"--snapshot-metadata", "--controller"}, "none of the others can be"},
		"node":         {[]string{"--snapshot-metadata", "--node"}, "none of the others can be"},
		"no config":    {[]string{"--controller"}, "$SPDKCSI_CONFIG"},
		"no node id":   {[]string{"--node"}, "--nodeid"},
		"bad node id":  {[]string{"--node", "--nodeid", "a b"}, "not a node's id"},
		"endpoint":     {[]string{"--node", "--nodeid", "a", "--endpoint", "tcp://127.0.0.1:1"}, "UNIX socket"},
		"level":        {[]string{"--node", "--nodeid", "a", "--log-level", "loud"}, "debug, info, warn or error"},
		"format":       {[]string{"--node", "--nodeid", "a", "--log-format", "xml"}, "text or json"},
		"NVMe option":  {[]string{"--node", "--nodeid", "a", "--nvme-keep-alive", "1500ms"}, "whole number of seconds"},
		"unknown flag": {[]string{"--nodes"}, "unknown flag"},
		"argument":     {[]string{"--node", "x"}, "x"},
	} {
		t.Run(name, func(t *testing.T) { assert.ErrorContains(t, execute(t.Context(), c.args...), c.want) })
	}
}

// A process that serves only snapshot metadata does not offer any calls that create, change or
// delete volumes.
func TestProcessServesOnlySnapshotMetadata(t *testing.T) {
	newTarget(t)
	socket := filepath.Join(t.TempDir(), "csi.sock")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- execute(ctx, "--snapshot-metadata", "--endpoint=unix://"+socket) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	stream, err := csi.NewSnapshotMetadataClient(conn).GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: "t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.NotFound, status.Code(err), "%v", err)
	_, err = csi.NewControllerClient(conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	assert.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
	_, err = csi.NewGroupControllerClient(conn).GroupControllerGetCapabilities(t.Context(), &csi.GroupControllerGetCapabilitiesRequest{})
	assert.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
	stop()
	require.NoError(t, <-ended)
}

func TestDriverServesUntilItIsStopped(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SPDKCSI_CONFIG", filepath.Join(dir, "config.json"))
	t.Setenv("SPDKCSI_SECRET", filepath.Join(dir, "secret.json"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"nodes": [{"name": "a", "rpcURL": "https://127.0.0.1:1/", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1"}]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret.json"), []byte(`{"rpcTokens": []}`), 0o600))
	socket := filepath.Join(dir, "csi.sock")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	// Use the flags in spdk-csi's manifests, but with both services in one process.
	go func() {
		ended <- execute(ctx, "--v=5", "--endpoint=unix://"+socket, "--nodeid=node-1", "--node", "--controller", "--drivername=x.example")
	}()
	require.Eventually(t, func() bool {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}, time.Minute, 5*time.Millisecond)
	require.Error(t, execute(t.Context(), "--node", "--nodeid=node-1", "--endpoint=unix://"+socket), "another process listens on the socket")
	stop()
	require.NoError(t, <-ended)
	assert.NoFileExists(t, socket)
}
