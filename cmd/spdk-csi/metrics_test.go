package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spdkgate/spdkgate/driver/drivertest"
)

func TestMetricsCountCalls(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	unreachable := closed.Addr().String()
	require.NoError(t, closed.Close())
	dir := t.TempDir()
	t.Setenv("SPDKCSI_CONFIG", filepath.Join(dir, "config.json"))
	t.Setenv("SPDKCSI_SECRET", filepath.Join(dir, "secret.json"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"nodes": [{"name": "storage-1", "rpcURL": "https://`+unreachable+`/", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1"}]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret.json"), []byte(`{"rpcTokens": [{"name": "storage-1", "username": "u", "password": "p"}]}`), 0o600))
	socket := filepath.Join(dir, "csi.sock")
	ctx, stop := context.WithCancel(t.Context())
	logs, ended := new(drivertest.Log), make(chan error, 1)
	go func() {
		cmd := command(logs)
		cmd.SetArgs([]string{"--controller", "--endpoint=unix://" + socket, "--metrics-address=127.0.0.1:0"})
		ended <- cmd.ExecuteContext(ctx)
	}()
	announced := regexp.MustCompile(`serving metrics" address=(\S+)`)
	require.Eventually(t, func() bool { return announced.MatchString(logs.String()) }, time.Minute, 5*time.Millisecond)

	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	require.NoError(t, err)
	_, err = csi.NewControllerClient(conn).ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.Error(t, err)

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		resp, err := client.Get("http://" + announced.FindStringSubmatch(logs.String())[1] + path)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	status, text := get("/metrics")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, `spdk_csi_operations_total{code="OK",method="GetPluginInfo"} 1`)
	assert.Contains(t, text, `spdk_csi_operations_total{code="Unavailable",method="ListVolumes"} 1`)
	assert.Contains(t, text, `spdk_csi_target_up{target="storage-1"} 0`)
	assert.Regexp(t, `outcome="unreachable",target="storage-1"} [12]\b`, text, "the list, and perhaps the controller's own measuring of space")
	status, _ = get("/debug/pprof/")
	assert.Equal(t, http.StatusNotFound, status)

	stop()
	require.NoError(t, <-ended)
}

func TestInvalidMetricsAddressIsRejected(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	err := execute(t.Context(), "--node", "--nodeid=a", "--endpoint=unix://"+socket, "--metrics-address=nowhere")
	require.ErrorContains(t, err, "--metrics-address")
	assert.NoFileExists(t, socket)
}
