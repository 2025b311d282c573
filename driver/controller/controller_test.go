package controller

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
)

func TestFiftyIdenticalCreatesProduceOneVolume(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	ids := make([]string, 50)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			resp, err := drivertest.Retry(driver.Code, func() (*csi.CreateVolumeResponse, error) {
				return b.CreateVolume(t.Context(), b.request("pvc-1", 8*mib))
			})
			assert.NoError(t, err)
			ids[i] = resp.GetVolume().GetVolumeId()
		})
	}
	wg.Wait()
	for _, id := range ids {
		assert.Equal(t, ids[0], id)
	}
	assert.Len(t, append(b.targets[0].lvols(t), b.targets[1].lvols(t)...), 1)
}

func TestTwentyConcurrentVolumesLeaveNothingBehind(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	before := []uint64{b.targets[0].free(t), b.targets[1].free(t)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			req := b.request(fmt.Sprintf("pvc-%d", i), int64(4+i%3)*mib)
			req.Parameters = map[string]string{"thin": fmt.Sprint(i%2 == 0)}
			resp, err := b.CreateVolume(t.Context(), req)
			if !assert.NoError(t, err) {
				return
			}
			_, err = b.publish(t.Context(), resp.GetVolume(), nodeA)
			assert.NoError(t, err)
			assert.NoError(t, b.unpublish(t.Context(), resp.GetVolume().GetVolumeId(), nodeA))
			assert.NoError(t, b.delete(t.Context(), resp.GetVolume().GetVolumeId()))
		})
	}
	wg.Wait()
	assert.Equal(t, before, []uint64{b.targets[0].free(t), b.targets[1].free(t)})
	assert.Empty(t, append(b.targets[0].lvols(t), b.targets[1].lvols(t)...))
}

func TestVolumesAreSpreadOverTargets(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	for i := range 40 {
		b.create(t, fmt.Sprintf("pvc-%d", i), 4*mib)
	}
	assert.Greater(t, len(b.targets[0].lvols(t)), 8)
	assert.Greater(t, len(b.targets[1].lvols(t)), 8)
}

func TestCreateReadsBackAfterALostReply(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	for i := range 8 {
		name := fmt.Sprintf("pvc-%d", i)
		for _, s := range b.targets {
			s.loseReplyOf("bdev_lvol_create")
		}
		_, err := drivertest.Retry(driver.Code, func() (*csi.CreateVolumeResponse, error) { return b.CreateVolume(t.Context(), b.request(name, 4*mib)) })
		require.NoError(t, err)
	}
	assert.Len(t, append(b.targets[0].lvols(t), b.targets[1].lvols(t)...), 8)
}

func TestUnreachableTargetIsUnavailable(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	target, other := b.targets[0], b.targets[1]
	if strings.HasPrefix(v.GetVolumeId(), "t1:") {
		target, other = other, target
	}
	target.Crash()
	_, err := b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err), "rpcURL")
	assert.Empty(t, other.lvols(t), "the volume is not created a second time")
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(b.delete(t.Context(), v.GetVolumeId())))
	_, err = b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(err))
	drivertest.RequireCode(t, codes.Unavailable, driver.Status(b.unpublish(t.Context(), v.GetVolumeId(), nodeA)))

	req := b.request("pvc-2", 4*mib)
	req.Parameters = map[string]string{"target": other.name}
	_, err = b.CreateVolume(t.Context(), req)
	require.NoError(t, err, "a class with one target does not need the others")

	target.gateway.Close()
	_, err = b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	assert.Contains(t, []codes.Code{codes.Unavailable, codes.Aborted}, driver.Code(err), "Aborted if the connection broke during the request: %v", err)
}

func TestCreateRefusesInvalidRequests(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	elsewhere := secretsFor("t9")
	for name, c := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		text   string
	}{
		"no name":       {func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument, "name"},
		"no capability": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument, "volume_capabilities"},
		"many nodes": {func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0] = drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, false)
		}, codes.InvalidArgument, "ReadWriteOnce"},
		"mount option":     {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = ofType("xfs", "errors=panic") }, codes.InvalidArgument, "mount option"},
		"file system":      {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = ofType("ntfs") }, codes.InvalidArgument, "ext4, xfs, btrfs"},
		"no secret":        {func(r *csi.CreateVolumeRequest) { r.Secrets = nil }, codes.FailedPrecondition, "csi.storage.k8s.io/provisioner-secret-name"},
		"wrong secret key": {func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"x": "y"} }, codes.InvalidArgument, "secret.json"},
		"secret no JSON": {func(r *csi.CreateVolumeRequest) {
			r.Secrets = map[string]string{config.SecretKey: `{"rpcTokens":"hunter2"}`}
		}, codes.InvalidArgument, "rpcTokens"},
		"secret without the target": {func(r *csi.CreateVolumeRequest) { r.Secrets = elsewhere }, codes.InvalidArgument, `"t0"`},
		"wrong password": {func(r *csi.CreateVolumeRequest) {
			r.Secrets = map[string]string{config.SecretKey: strings.Replace(b.secrets[config.SecretKey], password, "hunter2", 1)}
		}, codes.Unauthenticated, "rpcTokens"},
		"parameter":            {param("Thin", "true"), codes.InvalidArgument, "clearMethod, ctrl_loss_tmo, data_digest, encryption, encryptionDiscards, fast_io_fail_tmo, filesystemUUID, fsType, hdr_digest, keep_alive_tmo, lvstore, mkfsOptions, nr_io_queues, placement, qosIOPS, qosMiBPerSecond, qosReadMiBPerSecond, qosWriteMiBPerSecond, queue_size, reconnect_delay, replicaSpread, replicas, target, targetLabels, thin"},
		"parameter's value":    {param("thin", "maybe"), codes.InvalidArgument, "true (the default) or false"},
		"no such lvstore":      {param("lvstore", "lvs9"), codes.InvalidArgument, "lvs9"},
		"no such target":       {param("target", "t9"), codes.InvalidArgument, "t9"},
		"mutable parameters":   {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "1"} }, codes.InvalidArgument, "mutable"},
		"limit below required": {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 1 }, codes.OutOfRange, "limit"},
		"negative":             {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = -1 }, codes.InvalidArgument, "negative"},
		"huge":                 {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1<<63 - 1 }, codes.OutOfRange, "any volume"},
		"larger than all":      {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1 << 40 }, codes.ResourceExhausted, "in total"},
		"source malformed":     {source(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "nope"}}}), codes.NotFound, "nope"},
		"source gone":          {source(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "t0:" + uuid.NewString()}}}), codes.NotFound, "not found"},
		"source's target gone": {source(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "t9:" + uuid.NewString()}}}), codes.FailedPrecondition, "config.json"},
		"source of no kind":    {source(&csi.VolumeContentSource{}), codes.InvalidArgument, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			req := b.request("pvc-1", 4*mib)
			c.change(req)
			_, err := b.CreateVolume(t.Context(), req)
			drivertest.RequireCode(t, c.code, driver.Status(err), c.text)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
	assert.Empty(t, b.targets[0].lvols(t))
	assert.NotContains(t, b.logs.String(), "hunter2")
}

func ofType(fs string, flags ...string) *csi.VolumeCapability {
	c := drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, false)
	c.GetMount().FsType, c.GetMount().MountFlags = fs, flags
	return c
}

func param(key, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{key: value} }
}

func source(s *csi.VolumeContentSource) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = s }
}

// Volume names, ids and contexts are the same as in SPDK's spdk-csi.
func TestVolumesAreCompatibleWithSpdkCSI(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	req := b.request("pvc-1", 5*mib)
	req.Parameters = map[string]string{"fsType": "ext4", "csi.storage.k8s.io/pvc/name": "mine", "csi.storage.k8s.io/provisioner-secret-name": "x"}
	resp, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	v := resp.GetVolume()
	id, err := request.ParseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	assert.Equal(t, int64(8*mib), v.GetCapacityBytes(), "the size of the volume, not the requested size")
	assert.Equal(t, map[string]string{
		"targetType": "TCP", "targetAddr": "127.0.0.1", "targetPort": "4420", "nqn": "nqn.2020-04.io.spdk.csi:uuid:" + id.UUID, "model": id.UUID,
		"lvolSize": "8388608", "lvstore": "lvs0", "fsType": "ext4", "nsUUID": id.UUID, "mayFormat": "true",
		"csi.storage.k8s.io/pvc/name": "mine", // used for metrics; SPDK's spdk-csi does not set this key
	}, v.GetVolumeContext())
	assert.Equal(t, []string{"lvs0/pvc-1"}, b.targets[0].lvols(t))
}

func TestInvalidIDsAreRejected(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	for _, id := range []string{"x", "t0:", ":" + uuid.NewString(), "t0:" + strings.ToUpper(uuid.NewString()), "t0:{" + uuid.NewString() + "}", "a:b:" + uuid.NewString(), "../../etc"} {
		require.NoError(t, b.delete(t.Context(), id), id)
		require.NoError(t, b.unpublish(t.Context(), id, nodeA), id)
		_, err := b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id, Secrets: b.secrets})
		require.NoError(t, err, id)
		_, err = b.publish(t.Context(), &csi.Volume{VolumeId: id}, nodeA)
		drivertest.RequireCode(t, codes.NotFound, driver.Status(err), "TARGET:UUID")
		_, err = b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 1}, Secrets: b.secrets})
		drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
	}
	unconfigured := "t9:" + uuid.NewString()
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(b.delete(t.Context(), unconfigured)), "config.json")
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(b.unpublish(t.Context(), unconfigured, nodeA)), "config.json")
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(b.delete(t.Context(), "")))
	for range 2 {
		require.NoError(t, b.delete(t.Context(), "t0:"+uuid.NewString()))
	}
}

func TestVolumeIsExpanded(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	req := &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * mib}, Secrets: b.secrets}
	for range 2 {
		resp, err := b.ControllerExpandVolume(t.Context(), req)
		require.NoError(t, err)
		assert.Equal(t, int64(8*mib), resp.GetCapacityBytes())
		assert.True(t, resp.GetNodeExpansionRequired())
	}
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 9 * mib, LimitBytes: 10 * mib}
	_, err := b.ControllerExpandVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.OutOfRange, driver.Status(err))
	req.CapacityRange = &csi.CapacityRange{LimitBytes: 100 * mib}
	resp, err := b.ControllerExpandVolume(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, int64(8*mib), resp.GetCapacityBytes(), "a limit alone does not grow the volume")
	req.CapacityRange = nil
	_, err = b.ControllerExpandVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
	req = &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * mib}}
	_, err = b.ControllerExpandVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "csi.storage.k8s.io/controller-expand-secret-name")
}

func TestNextLvstoreIsUsedWhenOneIsFull(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0", "lvs1"))
	thick := map[string]string{"thin": "false"}
	for i := range 4 { // each volume fills most of the free space of one lvstore
		req := b.request(fmt.Sprintf("pvc-%d", i), []int64{300, 300, 80, 80}[i]*mib)
		req.Parameters = thick
		_, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err, i)
	}
	req := b.request("pvc-9", 80*mib)
	req.Parameters = thick
	_, err := b.CreateVolume(t.Context(), req)
	drivertest.RequireCode(t, codes.ResourceExhausted, driver.Status(err), "lvs0", "lvs1")
}

func TestVolumeCapabilitiesAreValidated(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	req := &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.GetVolumeId(), VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: b.secrets}
	resp, err := b.ValidateVolumeCapabilities(t.Context(), req)
	require.NoError(t, err)
	assert.NotNil(t, resp.GetConfirmed())
	req.VolumeCapabilities = append(req.VolumeCapabilities, drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, false))
	resp, err = b.ValidateVolumeCapabilities(t.Context(), req)
	require.NoError(t, err)
	assert.Nil(t, resp.GetConfirmed())
	assert.Contains(t, resp.GetMessage(), "MULTI_NODE_MULTI_WRITER")
}

func TestConcurrentCallsForOneVolumeAreAborted(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	id, _ := request.ParseVolumeID(v.GetVolumeId())
	claim := b.locks.Claim()
	require.NoError(t, claim.Take(id.UUID))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(b.delete(t.Context(), v.GetVolumeId())))
	_, err := b.publish(t.Context(), v, nodeA)
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(b.unpublish(t.Context(), v.GetVolumeId(), nodeA)))
	_, err = b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err)) // the other call may be deleting the volume
	claim.Release()
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
}

func TestEachCredentialHasItsOwnConnections(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	for range 3 {
		b.create(t, "pvc-1", 4*mib)
	}
	assert.Len(t, b.Controller.targets.clients, 1)
	for i := range 2 * maxClients {
		wrong := maps.Clone(b.secrets)
		wrong[config.SecretKey] = strings.Replace(wrong[config.SecretKey], password, fmt.Sprint(i), 1)
		_, err := b.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "x", VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: wrong})
		drivertest.RequireCode(t, codes.Unauthenticated, driver.Status(err))
	}
	assert.LessOrEqual(t, len(b.Controller.targets.clients), maxClients)
	for k := range b.Controller.targets.clients {
		assert.NotContains(t, fmt.Sprint(k), password)
	}
}
