package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// witnessServer simulates an API server that stores ReplicatedVolumes. Objects are maps, as decoded
// by encoding/json.
type witnessServer struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]any
}

func (s *witnessServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, found := strings.CutPrefix(r.URL.Path, "/apis/spdkgate.io/v1alpha1/replicatedvolumes")
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	name, part, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	stored := s.objects[name]
	code := http.StatusOK
	switch {
	case !found:
		code = http.StatusNotFound
	case r.Method == http.MethodPost:
		name, stored = body["metadata"].(map[string]any)["name"].(string), body
		body["metadata"].(map[string]any)["uid"] = "uid-1"
		s.objects[name], code = stored, http.StatusCreated
	case stored == nil:
		code = http.StatusNotFound
	case r.Method == http.MethodPut && part == "status":
		stored["status"] = body["status"]
	case r.Method == http.MethodPut:
		stored["spec"], stored["metadata"].(map[string]any)["finalizers"] = body["spec"], body["metadata"].(map[string]any)["finalizers"]
	case r.Method == http.MethodDelete:
		stored["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-28T00:00:00Z"
	}
	w.WriteHeader(code)
	if code == http.StatusNotFound {
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "details": map[string]any{"name": name}})
		return
	}
	metadata := stored["metadata"].(map[string]any)
	if r.Method != http.MethodGet {
		s.version++
		metadata["resourceVersion"] = strconv.Itoa(s.version)
	}
	if metadata["deletionTimestamp"] != nil && metadata["finalizers"] == nil {
		delete(s.objects, name)
	}
	_ = json.NewEncoder(w).Encode(stored)
}

// setStatus changes the status as the node plugin does.
func (s *witnessServer) setStatus(t *testing.T, name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var decoded any
	require.NoError(t, json.Unmarshal([]byte(text), &decoded))
	s.objects[name]["status"] = decoded
}

// A StorageClass with replicas: "2" creates volumes on two servers. After the loss of one server,
// spdk-csi replica keep continues with the other replica, and another node can use the volume.
func TestReplicaKeepCommandContinuesAVolume(t *testing.T) {
	targets := newTargets(t, 2)
	api := &witnessServer{objects: map[string]map[string]any{}}
	dir := apiServerOf(t, api.ServeHTTP)
	c := csi.NewControllerClient(serving(t, &lockedBuffer{}, t.TempDir(), "--controller", "--replication", "--service-account-dir="+dir))
	single := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, false)
	resp, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 8 << 20}, Parameters: map[string]string{"replicas": "2"}, VolumeCapabilities: []*csi.VolumeCapability{single},
	})
	require.NoError(t, err)
	for _, rpc := range targets {
		lvols, err := rpc.BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
		require.NoError(t, err)
		assert.Len(t, lvols, 1)
	}
	v := resp.GetVolume()
	id, err := request.ParseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	publish := func(node string) error {
		_, err := c.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: node, VolumeCapability: single, VolumeContext: v.GetVolumeContext()})
		return err
	}
	require.NoError(t, publish("worker-3"))
	made, err := request.ParseReplicated(v.GetVolumeContext()[request.KeyReplicated])
	require.NoError(t, err)
	lost, kept := made.Replicas[0].Server, made.Replicas[1].Server
	api.setStatus(t, id.UUID, `{"epoch": 5, "inSync": [0], "clean": false, "logged": [1], "discarded": [], "held": {"generation": 1, "replicas": [0]}}`)

	keep := func(args ...string) (string, error) {
		return runCommand(t, append([]string{"replica", "keep", v.GetVolumeId(), kept, "--service-account-dir=" + dir}, args...)...)
	}
	out, err := keep()
	require.NoError(t, err)
	assert.Equal(t, "replica 0 on "+lost+": current; would be discarded: data that only this replica contains is lost\n"+
		"replica 1 on "+kept+": not current; would be kept\n"+
		"The volume is published to node worker-3.\n"+
		"Nothing was changed. Make sure that the node no longer writes, and confirm with --stopped-node worker-3 --discard "+lost+"\n", out)
	for _, args := range [][]string{{"--discard", lost}, {"--stopped-node", "worker-3"}, {"--stopped-node=worker-4", "--discard", lost}} {
		_, err := keep(args...)
		require.ErrorContains(t, err, "Nothing was changed", args)
	}
	done := "volume " + v.GetVolumeId() + " continues with the replica on " + kept + "; the replica on " + lost + " is discarded, and will be overwritten\n"
	for range 2 {
		out, err = keep("--stopped-node", "worker-3", "--discard", lost)
		require.NoError(t, err)
		assert.Equal(t, done, out)
	}
	assert.Equal(t, map[string]any{"epoch": 6.0, "inSync": []any{1.0}, "clean": false, "logged": []any{}, "discarded": []any{0.0}, "held": map[string]any{"generation": 2.0, "replicas": []any{}}}, api.objects[id.UUID]["status"])
	require.NoError(t, publish("worker-4"))
	_, err = c.ControllerUnpublishVolume(t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), NodeId: "worker-4"})
	require.NoError(t, err)
	_, err = c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
	require.NoError(t, err)
	assert.Empty(t, api.objects)
	_, err = keep()
	require.ErrorContains(t, err, "has no witness")
	_, err = runCommand(t, "replica", "keep", "t0:"+id.UUID, "t0")
	require.ErrorContains(t, err, "has one replica")
}

// Without --replication, the controller refuses the class parameter and creates nothing.
func TestReplicatedClassNeedsTheFlag(t *testing.T) {
	rpc := newTarget(t)
	c := csi.NewControllerClient(serving(t, &lockedBuffer{}, t.TempDir(), "--controller"))
	_, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "pvc-1", Parameters: map[string]string{"replicas": "2"}, VolumeCapabilities: []*csi.VolumeCapability{drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, false)},
	})
	require.ErrorContains(t, err, "needs the component replication, which is not installed")
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	lvols, err := rpc.BdevLvolGetLvols(t.Context(), spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	assert.Empty(t, lvols)
}
