package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestReplicatedVolumeLosesNoWrites(t *testing.T) {
	b := newReplicatedController(t)
	ctx := t.Context()
	v, id := b.make(t)
	again, _ := b.make(t)
	assert.Equal(t, v, again, "a repeated call finds the volume")
	assert.EqualValues(t, 12*mib, v.GetCapacityBytes(), "two lvols of 16 MiB without their heads")
	assert.Equal(t, "replicated:"+replicatedUUID("pvc-1"), v.GetVolumeId())
	for i, s := range b.targets {
		assert.Len(t, s.lvols(t), 1, "one replica on each server", i)
	}
	list, err := b.ListVolumes(ctx, &csi.ListVolumesRequest{})
	require.NoError(t, err)
	assert.Empty(t, list.GetEntries(), "csi-attacher publishes volumes that are not listed again and again, which restores exports")

	resp, err := b.publish(ctx, v, nodeA)
	require.NoError(t, err)
	repeated, err := b.publish(ctx, v, nodeA)
	require.NoError(t, err)
	assert.Equal(t, resp, repeated)
	assert.Equal(t, "true", resp.GetPublishContext()[request.KeyMayFormat])
	r, err := request.ParseReplicated(resp.GetPublishContext()[request.KeyReplicated])
	require.NoError(t, err)
	assert.Equal(t, "uid-1", r.UID)
	assert.EqualValues(t, 1, r.Generation)
	assert.Equal(t, v.GetCapacityBytes(), r.SizeBytes)
	for _, x := range r.Replicas {
		e, err := connect.ParseExport(x.Export, nil)
		require.NoError(t, err)
		assert.Equal(t, connect.Export{Transport: connect.TCP, Address: "127.0.0.1", Port: "4420", NQN: export.ReplicaNQN(x.UUID, 1), NSUUID: x.UUID}, e)
		assert.Equal(t, map[string][]string{e.NQN: {connect.HostOf(nodeA).NQN}}, b.server(id, replica.ID(x.Number)).exports(t))
	}
	_, err = b.publish(ctx, v, nodeB)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), nodeA)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(b.delete(ctx, v.GetVolumeId())), "unpublish")

	b.stage(t, id)
	for range 2 {
		require.NoError(t, b.unpublish(ctx, v.GetVolumeId(), nodeA))
	}
	for _, s := range b.targets {
		assert.Empty(t, s.exports(t))
	}
	resp, err = b.publish(ctx, v, nodeB)
	require.NoError(t, err)
	r, err = request.ParseReplicated(resp.GetPublishContext()[request.KeyReplicated])
	require.NoError(t, err)
	assert.EqualValues(t, 3, r.Generation)
	require.NoError(t, b.unpublish(ctx, v.GetVolumeId(), nodeA), "it is not published there")
	assert.Equal(t, nodeB, b.witnesses.records[id.UUID].Witness.Writer.Node)
	require.NoError(t, b.unpublish(ctx, v.GetVolumeId(), ""))
	for range 2 {
		require.NoError(t, b.delete(ctx, v.GetVolumeId()))
	}
	assert.Empty(t, b.witnesses.records)
	for _, s := range b.targets {
		assert.Empty(t, s.lvols(t))
	}
	require.NoError(t, b.unpublish(ctx, v.GetVolumeId(), nodeB), "the volume is deleted")
}

// Calls that do not support replicated volumes refuse such a volume. A replica cannot be deleted
// alone.
func TestUnsupportedCallsRefuseReplicatedVolumes(t *testing.T) {
	b := newReplicatedController(t)
	ctx := t.Context()
	v, id := b.make(t)
	for _, call := range map[string]func() error{
		"expand": func() error {
			_, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 99 * mib}, Secrets: b.secrets})
			return err
		},
		"snapshot": func() error {
			_, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
			return err
		},
		"group snapshot": func() error {
			_, err := b.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{v.GetVolumeId()}, Secrets: b.secrets})
			return err
		},
		"clone": func() error { _, err := b.copyOf(t, v.GetVolumeId(), "copy", nil); return err },
		"health": func() error {
			_, err := b.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: v.GetVolumeId(), Secrets: b.secrets})
			return err
		},
	} {
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(call()), "two storage servers")
	}
	lvol, err := b.targets[0].rpc.BdevLvolGetLvols(ctx, spdkrpc.BdevLvolGetLvolsParams{})
	require.NoError(t, err)
	require.ErrorIs(t, b.delete(ctx, "t0:"+lvol[0].UUID), volume.ErrWrongKind, "one replica alone")
	assert.Contains(t, b.witnesses.records, id.UUID)
	before := len(b.targets[0].lvols(t))
	for text, change := range map[string]func(*csi.CreateVolumeRequest){
		"ReadWriteOnce": func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, false)}
		},
		"fast_io_fail_tmo": func(r *csi.CreateVolumeRequest) {
			r.Parameters = map[string]string{"replicas": "2", "fast_io_fail_tmo": "5"}
		},
		"ctrl_loss_tmo": func(r *csi.CreateVolumeRequest) {
			r.Parameters = map[string]string{"replicas": "2", "ctrl_loss_tmo": "5"}
		},
		"thin": func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"replicas": "2", "thin": "false"} },
		"clearMethod": func(r *csi.CreateVolumeRequest) {
			r.Parameters = map[string]string{"replicas": "2", "clearMethod": "none-exposes-deleted-data"}
		},
		"I/O limits": func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"replicas": "2", "qosIOPS": "1000"} },
		"only one suitable storage server, \"t1\"": func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"replicas": "2", "target": "t1"} },
		"room": func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1 << 40 },
	} {
		req := b.request("pvc-2", 9*mib)
		change(req)
		_, err := b.createFrom(ctx, req)
		require.ErrorContains(t, err, text)
		assert.Contains(t, err.Error(), "Nothing was created")
	}
	b.SetWitnesses(nil)
	_, err = b.createFrom(ctx, b.request("pvc-2", 9*mib))
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "not installed")
	assert.Len(t, b.targets[0].lvols(t), before)
	assert.Len(t, b.witnesses.records, 1)
}

// An iSCSI target cannot have replicas; the error names such a target.
func TestReplicasRequireNVMe(t *testing.T) {
	b := newReplicatedController(t)
	b.Controller.targets.byName["t1"] = volume.NewTarget(volume.Config{Config: export.Config{Name: "t1", Transport: export.ISCSI}})
	_, err := b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	require.ErrorIs(t, err, class.ErrParameter)
	assert.ErrorContains(t, err, "t1 exports over iSCSI")
}

// If only one replica is created, a repeated call creates the missing replica in the lvstore chosen
// by the first call. A creation that is undone leaves nothing behind.
func TestBothReplicasAreCreated(t *testing.T) {
	b := newReplicatedController(t)
	up := b.targets[1].down()
	_, err := b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), "t1")
	assert.Empty(t, b.witnesses.records)
	assert.Empty(t, b.targets[0].lvols(t))
	up()
	for i := range b.targets {
		b.targets[i].mu.Lock()
		b.targets[i].instead = map[string]func(){"bdev_lvol_create": func() {}}
		b.targets[i].mu.Unlock()
	}
	_, err = b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	require.Error(t, err)
	places := b.witnesses.records[replicatedUUID("pvc-1")].Places
	b.targets[0].mu.Lock()
	b.targets[0].instead = nil
	b.targets[0].mu.Unlock()
	_, err = b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	require.Error(t, err)
	b.targets[1].mu.Lock()
	b.targets[1].instead = nil
	b.targets[1].mu.Unlock()
	_, id := b.make(t)
	assert.Equal(t, places, b.witnesses.records[id.UUID].Places)
	_, err = b.createFrom(t.Context(), b.request("pvc-1", 99*mib))
	require.ErrorIs(t, err, volume.ErrIncompatible)

	// The next call completes the interrupted undo.
	up = b.targets[1].down()
	require.Error(t, b.undoReplicated(t.Context(), id, b.secrets))
	up()
	_, err = b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	assert.Empty(t, b.witnesses.records)
	v, id := b.make(t)
	require.NoError(t, b.undoReplicated(t.Context(), id, b.secrets))
	assert.Empty(t, b.witnesses.records)
	for _, s := range b.targets {
		assert.Empty(t, s.lvols(t))
	}
	b.witnesses.fail = fmt.Errorf("no response")
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
}

// An unreachable server does not prevent the use of a current replica on another server.
func TestVolumeIsPublishedWithoutOneServer(t *testing.T) {
	b := newReplicatedController(t)
	ctx := t.Context()
	v, id := b.make(t)
	a, other := b.server(id, 0), b.server(id, 1)
	up := other.down()
	_, err := b.publish(ctx, v, nodeA)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), other.name, "its first use needs both replicas")
	up()
	_, err = b.publish(ctx, v, nodeA)
	require.NoError(t, err)
	b.stage(t, id)

	up = other.down()
	require.NoError(t, b.unpublish(ctx, v.GetVolumeId(), nodeA))
	resp, err := b.publish(ctx, v, nodeB)
	require.NoError(t, err)
	assert.Equal(t, "false", resp.GetPublishContext()[request.KeyMayFormat], "it is unknown whether the other replica was written")
	r, err := request.ParseReplicated(resp.GetPublishContext()[request.KeyReplicated])
	require.NoError(t, err)
	assert.Len(t, r.Replicas, 2, "the node connects to the other one when it is back")
	assert.Len(t, a.exports(t), 1)
	up()
	for nqn := range other.exports(t) {
		assert.True(t, strings.HasSuffix(nqn, ":1"), "the export of the first publication is left")
	}
	_, err = b.publish(ctx, v, nodeB)
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{export.ReplicaNQN(r.Replicas[1].UUID, 3): {connect.HostOf(nodeB).NQN}}, other.exports(t))

	// Only the other server has a current replica.
	record := b.witnesses.records[id.UUID]
	record.Witness, err = record.Witness.Start(record.Witness.Writer, replica.SetOf(1), 0)
	require.NoError(t, err)
	up = other.down()
	err = b.unpublish(ctx, v.GetVolumeId(), nodeB)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), other.name)
	_, err = b.publish(ctx, v, nodeA)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), other.name)
	up()
	_, err = b.publish(ctx, v, nodeA)
	require.NoError(t, err)
}

// A publication that has been overtaken by another publication admits no host.
func TestSupersededPublicationDoesNotAdmitHosts(t *testing.T) {
	b := newReplicatedController(t)
	v, id := b.make(t)
	b.witnesses.onPublish = func() {
		r := b.witnesses.records[id.UUID]
		r.Witness = r.Witness.Publish(nodeB)
	}
	_, err := b.publish(t.Context(), v, nodeA)
	require.ErrorIs(t, err, replica.ErrFenced)
	for _, s := range b.targets {
		for nqn, hosts := range s.exports(t) {
			assert.Empty(t, hosts, nqn)
		}
	}
}

// A replica that has been replaced by another lvol with the same name is not exported.
func TestReplacedReplicaIsRefused(t *testing.T) {
	b := newReplicatedController(t)
	v, id := b.make(t)
	s, place := b.server(id, 1), b.witnesses.records[id.UUID].Places[1].Lvol
	_, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	b.stage(t, id)
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	require.NoError(t, s.rpc.BdevLvolDelete(t.Context(), spdkrpc.BdevLvolDeleteParams{Name: place}))
	_, err = s.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: strings.TrimPrefix(place, "lvs0/"), LvsName: new("lvs0"), SizeInMiB: 16, ThinProvision: new(true)})
	require.NoError(t, err)
	before := b.witnesses.records[id.UUID].Witness
	_, err = b.publish(t.Context(), v, nodeA)
	require.ErrorIs(t, err, volume.ErrIncompatible)
	assert.Equal(t, before, b.witnesses.records[id.UUID].Witness)
}

// The server with the second most space limits the capacity for replicated volumes. A volume of the
// reported maximum size can be created; a larger volume cannot.
func TestReplicatedVolumeCapacityIsReported(t *testing.T) {
	b := newReplicatedController(t)
	ctx := t.Context()
	req := b.request("plain", 100*mib)
	req.Parameters = map[string]string{"thin": "false"}
	_, err := b.CreateVolume(ctx, req) // on one of the servers
	require.NoError(t, err)
	capacity := func(req *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		resp, err := b.capacityOf(ctx, class.Class{Replicas: 2, Thick: true}, req)
		require.NoError(t, err)
		return resp
	}
	resp := capacity(&csi.GetCapacityRequest{})
	largest := resp.GetMaximumVolumeSize().GetValue()
	assert.Equal(t, largest, resp.GetAvailableCapacity())
	var rooms []int64
	for _, s := range b.targets {
		one, err := b.capacityOf(ctx, class.Class{Targets: []string{s.name}, Thick: true}, &csi.GetCapacityRequest{})
		require.NoError(t, err)
		rooms = append(rooms, one.GetAvailableCapacity())
	}
	assert.Equal(t, min(rooms[0], rooms[1])-replica.HeadBytes, largest)
	assert.Positive(t, resp.GetMinimumVolumeSize().GetValue())

	shared := drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, true)
	assert.Zero(t, capacity(&csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{shared}}).GetAvailableCapacity())
	_, err = b.capacityOf(ctx, class.Class{Replicas: 2, Targets: []string{"t0"}}, &csi.GetCapacityRequest{})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "t0")
	defer b.targets[0].down()()
	assert.Zero(t, capacity(&csi.GetCapacityRequest{}).GetAvailableCapacity(), "one server does not respond")
	b.SetWitnesses(nil)
	_, err = b.capacityOf(ctx, class.Class{Replicas: 2}, &csi.GetCapacityRequest{})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "component replication")
}

// If the lvstore of a replica has become too small, the creation is undone, and a repeated call
// chooses other lvstores.
func TestCreationIsUndoneIfAReplicaDoesNotFit(t *testing.T) {
	b := newReplicatedController(t)
	b.targets[1].mu.Lock()
	b.targets[1].instead = map[string]func(){"bdev_lvol_create": func() {}}
	b.targets[1].mu.Unlock()
	_, err := b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	require.Error(t, err)
	require.Len(t, b.witnesses.records, 1)
	require.Len(t, b.targets[0].lvols(t), 1)
	b.targets[1].mu.Lock()
	b.targets[1].instead = nil
	b.targets[1].mu.Unlock()
	free := b.targets[1].free(t)
	stores, err := b.targets[1].rpc.BdevLvolGetLvstores(t.Context(), spdkrpc.BdevLvolGetLvstoresParams{})
	require.NoError(t, err)
	_, err = b.targets[1].rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "filler", LvsName: &stores[0].Name, SizeInMiB: free * stores[0].ClusterSize / mib})
	require.NoError(t, err)
	_, err = b.createFrom(t.Context(), b.request("pvc-1", 9*mib))
	require.ErrorIs(t, err, volume.ErrNoSpace)
	assert.Empty(t, b.witnesses.records)
	assert.Empty(t, b.targets[0].lvols(t))
	assert.Equal(t, []string{"lvs0/filler"}, b.targets[1].lvols(t))
}
