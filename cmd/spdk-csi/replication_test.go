package main

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/node"
	"github.com/spdkgate/spdkgate/driver/request"
)

const replicatedID = "replicated:5e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"

// apiServer starts a simulated Kubernetes API server without objects. It returns the directory of a
// service account and a function that lists the calls made so far.
func apiServer(t *testing.T) (dir string, calls func() string) {
	var mu sync.Mutex
	var all []string
	dir = apiServerOf(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusNotFound)
	})
	return dir, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

// apiServerOf starts a simulated Kubernetes API server, and returns the directory of a service
// account.
func apiServerOf(t *testing.T, serve http.HandlerFunc) (dir string) {
	server := httptest.NewTLSServer(serve)
	t.Cleanup(server.Close)
	dir = t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600))
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(u.Host)
	require.NoError(t, err)
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	return dir
}

// serving runs the program until the test ends, and returns a connection to it.
func serving(t *testing.T, log *lockedBuffer, dir string, args ...string) *grpc.ClientConn {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	cmd := command(log)
	cmd.SetArgs(append([]string{"--endpoint=unix://" + filepath.Join(dir, "csi.sock")}, args...))
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		_ = conn.Close()
	})
	_, err = csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err)
	return conn
}

func TestInvalidReplicationFlagsAreRejected(t *testing.T) {
	newTarget(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	endpoint := "--endpoint=unix://" + filepath.Join(t.TempDir(), "csi.sock")
	for want, args := range map[string][]string{
		"needs --controller or --node":                        {"--snapshot-metadata", "--replication"},
		"use 1s or more":                                      {"--node", "--nodeid=a", "--replica-timeout=10ms"},
		"--replication: no access to the Kubernetes API":      {"--node", "--nodeid=a", "--replication", endpoint},
		"does not run in a pod ($KUBERNETES_SERVICE_HOST is ": {"--controller", "--replication", endpoint},
	} {
		require.ErrorContains(t, execute(t.Context(), args...), want)
	}
}

// With --replication, the controller reads witnesses from the Kubernetes API. Without it, the
// controller refuses replicated volumes.
func TestControllerUsesWitnesses(t *testing.T) {
	newTarget(t)
	dir, calls := apiServer(t)
	remove := func(args ...string) error {
		c := csi.NewControllerClient(serving(t, &lockedBuffer{}, t.TempDir(), append(args, "--controller")...))
		_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: replicatedID})
		return err
	}
	err := remove()
	assert.ErrorContains(t, err, "component replication")
	assert.Empty(t, calls())
	err = remove("--replication", "--service-account-dir="+dir)
	assert.ErrorContains(t, err, "replicatedvolumes.spdkgate.io")
	assert.Contains(t, calls(), "/apis/spdkgate.io/v1alpha1/replicatedvolumes/"+strings.TrimPrefix(replicatedID, "replicated:")+" Bearer secret")
}

// staged is a stub for the Healer.
type staged struct{}

func (staged) Stage(context.Context, heal.Volume) (string, error) { return "/dev/null", nil }
func (staged) Unstage(context.Context, heal.Volume) error         { return nil }
func (staged) Watch(heal.Volume) error                            { return nil }
func (staged) State(string) (heal.State, bool)                    { return heal.State{}, false }

func stageRequest(staging string) *csi.NodeStageVolumeRequest {
	d := request.Replicated{UID: "uid", Generation: 1, SizeBytes: 64 << 20}
	for i, uuid := range []string{"aa2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", "bb2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"} {
		d.Replicas = append(d.Replicas, request.Replica{Number: i, Server: "server-" + strconv.Itoa(i), UUID: uuid, Export: map[string]string{
			"targetType": "TCP", "targetAddr": "127.0.0.1", "targetPort": "1", "nqn": "nqn.2020-04.io.spdk.csi:replica:" + uuid + ":1", "nsUUID": uuid,
		}})
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId: replicatedID, StagingTargetPath: staging, VolumeCapability: drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, true),
		PublishContext: map[string]string{request.KeyReplicated: d.Format(), request.KeyMayFormat: "true"},
		VolumeContext:  map[string]string{request.KeyReplicated: "x", request.KeyMayFormat: "true", connect.KeyLvolSize: "67108864"},
	}
}

// With --replication, the node plugin heals the replicated volumes that an earlier process staged.
// In this test their mirror is not running, which the plugin reports. Without the option, the
// plugin refuses replicated volumes.
func TestNodeHealsReplicatedVolumes(t *testing.T) {
	account, _ := apiServer(t)
	state, staging := t.TempDir(), t.TempDir()
	connector, err := connect.New(connect.HostOf("node-1"), connect.Options{})
	require.NoError(t, err)
	earlier, err := node.New("node-1", 0, state, connector, mount.New(mount.Options{}), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	earlier.SetHealer(staged{})
	_, err = earlier.NodeStageVolume(t.Context(), stageRequest(staging))
	require.NoError(t, err)

	t.Run("without --replication", func(t *testing.T) {
		n := csi.NewNodeClient(serving(t, &lockedBuffer{}, t.TempDir(), "--node", "--nodeid=node-1", "--node-state-dir="+state))
		_, err := n.NodeStageVolume(t.Context(), stageRequest(t.TempDir()))
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
		assert.ErrorContains(t, err, "component replication")
	})
	var log lockedBuffer
	n := csi.NewNodeClient(serving(t, &log, t.TempDir(), "--node", "--nodeid=node-1", "--node-state-dir="+state, "--replication", "--service-account-dir="+account, "--metrics-address=127.0.0.1:0"))
	waits := func() bool {
		return strings.Contains(log.String(), "a replicated volume is waiting") && strings.Contains(log.String(), "its mirror is not running")
	}
	require.Eventually(t, waits, time.Minute, 10*time.Millisecond)
	address := regexp.MustCompile(`serving metrics" address=(\S+)`).FindStringSubmatch(log.String())[1]
	resp, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), `spdk_csi_node_replicated_volume_waiting{volume="`+strings.TrimPrefix(replicatedID, "replicated:")+`"} 0`)
	assert.NotContains(t, string(text), "spdk_csi_node_replicas_in_sync{", "unknown, because the mirror is not running")
	_, err = n.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: replicatedID, StagingTargetPath: staging})
	require.NoError(t, err, "its mirror does not exist")

	t.Run("a second process", func(t *testing.T) {
		var log lockedBuffer
		n := csi.NewNodeClient(serving(t, &log, t.TempDir(), "--node", "--nodeid=node-1", "--node-state-dir="+state, "--replication", "--service-account-dir="+account))
		_, err := n.NodeStageVolume(t.Context(), stageRequest(t.TempDir()))
		assert.ErrorContains(t, err, "another process of the node plugin has not ended yet")
	})
}
