package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
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

// The node plugin monitors its volumes unless a flag disables it.
func TestNodeMonitorsItsVolumesByDefault(t *testing.T) {
	for interval, watches := range map[string]bool{"": true, "1s": true, "0": false} {
		t.Run("interval "+interval, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "csi.sock")
			args := []string{"--node", "--nodeid=a", "--endpoint=unix://" + socket, "--metrics-address=127.0.0.1:0"}
			if interval != "" {
				args = append(args, "--node-health-interval="+interval)
			}
			ctx, stop := context.WithCancel(t.Context())
			logs, ended := new(drivertest.Log), make(chan error, 1)
			go func() {
				cmd := command(logs)
				cmd.SetArgs(append([]string{}, args...)) // with nil, cobra would use the test binary's arguments
				ended <- cmd.ExecuteContext(ctx)
			}()
			announced := regexp.MustCompile(`serving metrics" address=(\S+)`)
			require.Eventually(t, func() bool { return announced.MatchString(logs.String()) }, time.Minute, 5*time.Millisecond)
			conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			node := csi.NewNodeClient(conn)
			capabilities, err := node.NodeGetCapabilities(t.Context(), &csi.NodeGetCapabilitiesRequest{})
			require.NoError(t, err)
			assert.Equal(t, watches, strings.Contains(capabilities.String(), "GET_STORAGE_HEALTH"))
			_, err = node.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
			if watches {
				require.NoError(t, err)
			} else {
				assert.Equal(t, codes.Unimplemented, status.Code(err))
			}
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			checked := func() bool {
				resp, err := client.Get("http://" + announced.FindStringSubmatch(logs.String())[1] + "/metrics")
				require.NoError(t, err)
				defer func() { _ = resp.Body.Close() }()
				text, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				return strings.Contains(string(text), "spdk_csi_node_last_check_timestamp_seconds")
			}
			if watches {
				require.Eventually(t, checked, time.Minute, 5*time.Millisecond)
			} else {
				assert.False(t, checked())
			}
			stop()
			require.NoError(t, <-ended)
		})
	}
	err := execute(t.Context(), "--node", "--nodeid=a", "--endpoint=unix://"+filepath.Join(t.TempDir(), "csi.sock"), "--node-health-interval=10ms")
	require.ErrorContains(t, err, "--node-health-interval 10ms: use 1s or more")
}
