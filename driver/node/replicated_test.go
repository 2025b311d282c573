package node

import (
	"strconv"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/heal"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
)

const replicatedID = "replicated:5e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"

var replicaUUIDs = []string{"aa2dcb9d-3a79-4362-965e-fdb0cd3f4b8d", "bb2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"}

// A replicatedNode is a node plugin with a replicated volume.
type replicatedNode struct {
	*Node
	f      *fakeNode
	w      *replicatedWorld
	healer *heal.Healer
}

func newReplicatedNode(t *testing.T) *replicatedNode {
	_, f := newFakeNode(t)
	r := &replicatedNode{f: f, w: newReplicatedWorld(t)}
	r.restart()
	return r
}

// restart restarts the plugin.
func (r *replicatedNode) restart() {
	r.Node, r.healer = r.f.node(), r.w.healer()
	r.SetHealer(r.healer)
}

// pass lets the healer perform rounds for some time.
func (r *replicatedNode) pass(t *testing.T, d time.Duration) {
	t.Helper()
	for range d / time.Second {
		r.w.clock = r.w.clock.Add(time.Second)
		r.healer.Check(t.Context())
	}
}

func (r *replicatedNode) stageRequest(block bool) *csi.NodeStageVolumeRequest {
	d := request.Replicated{UID: r.w.record.UID, Generation: r.w.record.Witness.Writer.Generation, SizeBytes: 64 << 20}
	for i, uuid := range replicaUUIDs {
		d.Replicas = append(d.Replicas, request.Replica{Number: i, Server: "server-" + strconv.Itoa(i), UUID: uuid, Export: map[string]string{
			"targetType": "TCP", "targetAddr": "192.0.2.1", "targetPort": "4420", "nqn": export.ReplicaNQN(uuid, d.Generation), "nsUUID": uuid,
		}})
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId: replicatedID, StagingTargetPath: r.f.staging, VolumeCapability: drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, block),
		PublishContext: map[string]string{request.KeyReplicated: d.Format(), request.KeyMayFormat: "true"},
		VolumeContext:  map[string]string{request.KeyReplicated: "in the volume context", request.KeyMayFormat: "true", "keep_alive_tmo": "7", connect.KeyLvolSize: "67108864"},
	}
}

func (r *replicatedNode) stageVolume(t *testing.T) {
	t.Helper()
	_, err := r.NodeStageVolume(t.Context(), r.stageRequest(false))
	require.NoError(t, err)
}

func (r *replicatedNode) unstageVolume(t *testing.T) {
	t.Helper()
	_, err := r.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: replicatedID, StagingTargetPath: r.f.staging})
	require.NoError(t, err)
}

// write writes n blocks, and returns how many of them are acknowledged.
func (r *replicatedNode) write(n int) (acked int) {
	for i := range n {
		value := r.w.acked[i] + len(r.w.held) + 1
		r.w.write(i, value)
		if r.w.acked[i] == value {
			acked++
		}
	}
	return acked
}

// equal requires that both replicas contain the same data, including every acknowledged write.
func (r *replicatedNode) equal(t *testing.T) {
	t.Helper()
	r.w.check()
	assert.Equal(t, replica.SetOf(0, 1), r.w.record.Witness.InSync)
	assert.Equal(t, r.w.data[0], r.w.data[1])
	assert.Empty(t, r.w.held)
}

// A server dies during writes and then returns. The writes wait, continue with the other replica,
// and are finally on both replicas. The plugin may be restarted at any time.
func TestWritesSurviveAServerOutage(t *testing.T) {
	for _, dies := range []int{0, 1} {
		for _, restarts := range []bool{false, true} {
			t.Run(strconv.Itoa(dies)+" "+strconv.FormatBool(restarts), func(t *testing.T) {
				r := newReplicatedNode(t)
				restart := func() {
					if restarts {
						r.restart()
					}
				}
				r.stageVolume(t)
				assert.Equal(t, "/dev/dm-7", r.f.stage.Device)
				assert.True(t, r.f.stage.MayFormat)
				require.Equal(t, 50, r.write(50))
				r.w.up[dies] = false
				require.Zero(t, r.write(50), "no write is acknowledged that a listed replica lacks")
				restart()
				r.pass(t, 4*time.Second)
				require.Len(t, r.w.held, 50, "the server may return")
				r.pass(t, 5*time.Second)
				require.Empty(t, r.w.held)
				assert.Equal(t, replica.SetOf(1-replica.ID(dies)), r.w.record.Witness.InSync)
				require.Equal(t, 80, r.write(80))
				health, err := r.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: replicatedID})
				require.NoError(t, err)
				require.Len(t, health.GetVolumeHealth().GetHealthStatuses(), 1)
				assert.Equal(t, "ReplicaMissing", health.GetVolumeHealth().GetHealthStatuses()[0].GetReason())
				restart()
				r.w.up[dies] = true
				r.pass(t, 2*time.Minute)
				require.Equal(t, 80, r.write(80))
				r.equal(t)
				restart()
				r.unstageVolume(t)
				r.equal(t)
				assert.True(t, r.w.record.Witness.Clean)
				assert.False(t, r.w.running)
				assert.Equal(t, [2]bool{}, r.w.connected)
				assert.False(t, r.f.hasRecord())

				r.stageVolume(t) // the volume must not be formatted again
				assert.False(t, r.f.stage.MayFormat)
				r.unstageVolume(t)
			})
		}
	}
}

// Without the API server, or without any storage server, writes wait, and no write is lost.
func TestWritesWaitDuringOutages(t *testing.T) {
	r := newReplicatedNode(t)
	r.stageVolume(t)
	r.w.noAPI = true
	require.Equal(t, 50, r.write(50), "a complete volume does not need the API server")
	r.w.up[1] = false
	r.pass(t, time.Minute)
	require.Zero(t, r.write(50))
	assert.Equal(t, replica.SetOf(0, 1), r.w.record.Witness.InSync)
	r.w.noAPI, r.w.up[0] = false, false
	r.pass(t, time.Minute)
	require.Len(t, r.w.held, 50)
	assert.Equal(t, replica.SetOf(0, 1), r.w.record.Witness.InSync, "the last live replica is not given up")
	r.w.up[0] = true
	r.pass(t, time.Minute)
	require.Empty(t, r.w.held)
	r.w.up[1] = true
	r.pass(t, 2*time.Minute)
	r.equal(t)
	r.unstageVolume(t)
}

// After a power loss, the mirror starts with one replica, and the other replica is rebuilt in full.
func TestMirrorIsRebuiltAfterPowerLoss(t *testing.T) {
	r := newReplicatedNode(t)
	r.stageVolume(t)
	require.Equal(t, 50, r.write(50))
	r.w.running, r.w.connected = false, [2]bool{}
	r.w.data[1][7]++ // a write in flight was on only one replica
	r.restart()
	r.stageVolume(t)
	require.Equal(t, 50, r.write(50))
	r.pass(t, time.Minute)
	r.equal(t)
	r.unstageVolume(t)
}

// After a volume has been published to another node, the first node can still unstage the volume,
// and does not change the witness.
func TestVolumePublishedElsewhereCanBeUnstaged(t *testing.T) {
	r := newReplicatedNode(t)
	r.stageVolume(t)
	r.w.up[1] = false
	require.Zero(t, r.write(3))
	r.w.record.Witness = r.w.record.Witness.Publish(nodeA + "2")
	before := r.w.record.Witness
	r.pass(t, time.Minute)
	assert.Empty(t, r.w.held, "they have failed")
	r.unstageVolume(t)
	assert.Equal(t, before, r.w.record.Witness)
	assert.False(t, r.f.hasRecord())
}

func TestInvalidReplicatedStageRequestsAreRefused(t *testing.T) {
	r := newReplicatedNode(t)
	r.healerIs(nil)
	_, err := r.NodeStageVolume(t.Context(), r.stageRequest(false))
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "component replication")
	r.healerIs(r.w.healer())
	for name, change := range map[string]func(*csi.NodeStageVolumeRequest){
		"not published": func(req *csi.NodeStageVolumeRequest) { req.PublishContext = nil },
		"no generation": func(req *csi.NodeStageVolumeRequest) {
			req.PublishContext[request.KeyReplicated] = req.VolumeContext[request.KeyReplicated]
		},
		"another volume": func(req *csi.NodeStageVolumeRequest) { req.VolumeId = volID },
	} {
		req := r.stageRequest(false)
		change(req)
		_, err := r.NodeStageVolume(t.Context(), req)
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
		assert.False(t, r.f.hasRecord(), name)
	}
	r.w.up[1] = false
	_, err = r.NodeStageVolume(t.Context(), r.stageRequest(false))
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), "server-1")
	assert.False(t, r.w.running)
	assert.False(t, r.f.hasRecord(), "the failed call was undone")
	assert.False(t, r.w.record.Witness.Created)
	r.w.up[1] = true

	r.stageVolume(t)
	record, _, err := readRecord(r.f.staging, replicatedID)
	require.NoError(t, err)
	assert.Equal(t, 3, record.Version, "a program without mirrors must not unstage it")
	assert.Equal(t, map[string]string{"ctrl_loss_tmo": "-1", "fast_io_fail_tmo": "-1", "keep_alive_tmo": "7"}, record.Replicated.Replicas[0].Export.Options)
	_, err = r.NodeStageVolume(t.Context(), r.stageRequest(true))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), "different volume mode", "remains unchanged")
	r.w.record.Witness = r.w.record.Witness.Publish("other").Publish(nodeA)
	_, err = r.NodeStageVolume(t.Context(), r.stageRequest(false))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), "another publication", "remains unchanged")
	assert.True(t, r.w.running, "the staged publication is remains unchanged")
	staged, err := r.Volumes().Staged()
	require.NoError(t, err)
	assert.Empty(t, staged, "the monitor does not watch it")
}

// The mirror's device is published as a raw block volume, and the mirror is not stopped while its
// device is published.
func TestMirrorIsPublishedForRawBlock(t *testing.T) {
	r := newReplicatedNode(t)
	_, err := r.NodeStageVolume(t.Context(), r.stageRequest(true))
	require.NoError(t, err)
	target := r.f.staging + "-published"
	_, err = r.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{VolumeId: replicatedID, StagingTargetPath: r.f.staging, TargetPath: target, VolumeCapability: block})
	require.NoError(t, err)
	assert.Equal(t, "/dev/dm-7", r.f.mounts[target].Device)
	_, err = r.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: replicatedID, StagingTargetPath: r.f.staging})
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), target)
	assert.True(t, r.w.running)
	_, err = r.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: replicatedID, TargetPath: target})
	require.NoError(t, err)
	r.unstageVolume(t)
	assert.False(t, r.w.running)
}

func (r *replicatedNode) healerIs(h *heal.Healer) {
	if r.Node.healer = nil; h != nil {
		r.Node.healer = h
	}
}
