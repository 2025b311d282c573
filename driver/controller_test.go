package driver

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestFiftyIdenticalCreatesMakeOne(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	ids := make([]string, 50)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			resp, err := again(func() (*csi.CreateVolumeResponse, error) {
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

func TestTwentyAtOnceLeaveNothing(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
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

func TestVolumesSpread(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	for i := range 40 {
		b.create(t, fmt.Sprintf("pvc-%d", i), 4*mib)
	}
	assert.Greater(t, len(b.targets[0].lvols(t)), 8)
	assert.Greater(t, len(b.targets[1].lvols(t)), 8)
}

func TestLostReplyOfCreateIsFound(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	for i := range 8 {
		name := fmt.Sprintf("pvc-%d", i)
		for _, s := range b.targets {
			s.loseReplyOf("bdev_lvol_create")
		}
		_, err := again(func() (*csi.CreateVolumeResponse, error) { return b.CreateVolume(t.Context(), b.request(name, 4*mib)) })
		require.NoError(t, err)
	}
	assert.Len(t, append(b.targets[0].lvols(t), b.targets[1].lvols(t)...), 8)
}

func TestUnreachableTarget(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	target, other := b.targets[0], b.targets[1]
	if strings.HasPrefix(v.GetVolumeId(), "t1:") {
		target, other = other, target
	}
	target.Crash()
	_, err := b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	requireCode(t, codes.Unavailable, err, "rpcURL")
	assert.Empty(t, other.lvols(t), "it is not made a second time elsewhere")
	requireCode(t, codes.Unavailable, b.delete(t.Context(), v.GetVolumeId()))
	_, err = b.publish(t.Context(), v, nodeA)
	requireCode(t, codes.Unavailable, err)
	requireCode(t, codes.Unavailable, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))

	req := b.request("pvc-2", 4*mib)
	req.Parameters = map[string]string{"target": other.name}
	_, err = b.CreateVolume(t.Context(), req)
	require.NoError(t, err, "whoever keeps to one target does not need the others")

	target.gateway.Close()
	_, err = b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	assert.Contains(t, []codes.Code{codes.Unavailable, codes.Aborted}, code(err), "the latter if the connection broke under the request: %v", err)
}

func TestCreateValidates(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	elsewhere := secretsFor("t9")
	for name, c := range map[string]struct {
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		text   string
	}{
		"no name":       {func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument, "name"},
		"no capability": {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument, "volume_capabilities"},
		"many nodes": {func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0] = capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, false)
		}, codes.InvalidArgument, "ReadWriteOnce"},
		"file system":      {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = ofType("ntfs") }, codes.InvalidArgument, "ext4 or xfs"},
		"no secret":        {func(r *csi.CreateVolumeRequest) { r.Secrets = nil }, codes.FailedPrecondition, "csi.storage.k8s.io/provisioner-secret-name"},
		"wrong secret key": {func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{"x": "y"} }, codes.InvalidArgument, "secret.json"},
		"secret no JSON":   {func(r *csi.CreateVolumeRequest) { r.Secrets = map[string]string{secretKey: `{"rpcTokens":"hunter2"}`} }, codes.InvalidArgument, "rpcTokens"},
		"other target's":   {func(r *csi.CreateVolumeRequest) { r.Secrets = elsewhere }, codes.InvalidArgument, `"t0"`},
		"wrong password": {func(r *csi.CreateVolumeRequest) {
			r.Secrets = map[string]string{secretKey: strings.Replace(b.secrets[secretKey], password, "hunter2", 1)}
		}, codes.PermissionDenied, "rpcTokens"},
		"parameter":            {param("Thin", "true"), codes.InvalidArgument, "clearMethod, fsType, lvstore, target, thin"},
		"parameter's value":    {param("thin", "maybe"), codes.InvalidArgument, "true (the default) or false"},
		"no such lvstore":      {param("lvstore", "lvs9"), codes.InvalidArgument, "lvs9"},
		"no such target":       {param("target", "t9"), codes.InvalidArgument, "t9"},
		"mutable parameters":   {func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "1"} }, codes.InvalidArgument, "mutable"},
		"limit below required": {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 1 }, codes.OutOfRange, "limit"},
		"negative":             {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = -1 }, codes.InvalidArgument, "negative"},
		"huge":                 {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1<<63 - 1 }, codes.OutOfRange, "any volume"},
		"larger than all":      {func(r *csi.CreateVolumeRequest) { r.CapacityRange.RequiredBytes = 1 << 40 }, codes.ResourceExhausted, "in all"},
		"source malformed":     {source(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "nope"}}}), codes.NotFound, "nope"},
		"source gone":          {source(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "t0:" + uuid.NewString()}}}), codes.NotFound, "not found"},
		"source's target gone": {source(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "t9:" + uuid.NewString()}}}), codes.FailedPrecondition, "config.json"},
		"source of no kind":    {source(&csi.VolumeContentSource{}), codes.InvalidArgument, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			req := b.request("pvc-1", 4*mib)
			c.change(req)
			_, err := b.CreateVolume(t.Context(), req)
			requireCode(t, c.code, err, c.text)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
	assert.Empty(t, b.targets[0].lvols(t))
	assert.NotContains(t, b.logs.String(), "hunter2")
}

func ofType(fs string) *csi.VolumeCapability {
	c := capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, false)
	c.GetMount().FsType = fs
	return c
}

func param(key, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{key: value} }
}

func source(s *csi.VolumeContentSource) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = s }
}

func TestVolumeLooksAsSpdkCSIMadeIt(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	req := b.request("pvc-1", 5*mib)
	req.Parameters = map[string]string{"fsType": "ext4", "csi.storage.k8s.io/pvc/name": "mine", "csi.storage.k8s.io/provisioner-secret-name": "x"}
	resp, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	v := resp.GetVolume()
	id, err := parseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	assert.Equal(t, int64(8*mib), v.GetCapacityBytes(), "what was made, not what was asked")
	assert.Equal(t, map[string]string{
		"targetType": "TCP", "targetAddr": "127.0.0.1", "targetPort": "4420", "nqn": "nqn.2020-04.io.spdk.csi:uuid:" + id.uuid, "model": id.uuid,
		"lvolSize": "8388608", "lvstore": "lvs0", "fsType": "ext4", "nsUUID": id.uuid, "mayFormat": "true",
	}, v.GetVolumeContext())
	assert.Equal(t, []string{"lvs0/pvc-1"}, b.targets[0].lvols(t))
}

func TestBadIDs(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	for _, id := range []string{"x", "t0:", ":" + uuid.NewString(), "t0:" + strings.ToUpper(uuid.NewString()), "t0:{" + uuid.NewString() + "}", "a:b:" + uuid.NewString(), "../../etc"} {
		require.NoError(t, b.delete(t.Context(), id), id)
		require.NoError(t, b.unpublish(t.Context(), id, nodeA), id)
		_, err := b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: id, Secrets: b.secrets})
		require.NoError(t, err, id)
		_, err = b.publish(t.Context(), &csi.Volume{VolumeId: id}, nodeA)
		requireCode(t, codes.NotFound, err, "TARGET:UUID")
		_, err = b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 1}, Secrets: b.secrets})
		requireCode(t, codes.NotFound, err)
	}
	unconfigured := "t9:" + uuid.NewString()
	requireCode(t, codes.FailedPrecondition, b.delete(t.Context(), unconfigured), "config.json")
	requireCode(t, codes.FailedPrecondition, b.unpublish(t.Context(), unconfigured, nodeA), "config.json")
	requireCode(t, codes.InvalidArgument, b.delete(t.Context(), ""))
	for range 2 {
		require.NoError(t, b.delete(t.Context(), "t0:"+uuid.NewString()))
	}
}

func TestPublish(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	id, _ := parseVolumeID(v.GetVolumeId())
	for range 2 {
		resp, err := b.publish(t.Context(), v, nodeA)
		require.NoError(t, err)
		assert.Equal(t, "true", resp.GetPublishContext()[keyMayFormat])
		e, err := connect.ParseExport(resp.GetPublishContext())
		require.NoError(t, err)
		assert.Equal(t, connect.Export{Transport: connect.TCP, Address: "127.0.0.1", Port: "4420", NQN: volume.NQN(id.uuid), NSUUID: id.uuid, SizeBytes: 4 * mib}, e)
	}
	_, err := b.publish(t.Context(), v, nodeB)
	requireCode(t, codes.FailedPrecondition, err, connect.HostOf(nodeA).NQN)
	requireCode(t, codes.FailedPrecondition, b.delete(t.Context(), v.GetVolumeId()), "unpublish")
	_, err = b.publish(t.Context(), v, "no node/at all")
	requireCode(t, codes.NotFound, err)
	_, err = b.publish(t.Context(), &csi.Volume{VolumeId: "t0:" + uuid.NewString()}, nodeA)
	requireCode(t, codes.NotFound, err)
	for range 2 {
		require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	}
	_, err = b.publish(t.Context(), v, nodeB)
	require.NoError(t, err)
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), ""))
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA), "of a volume that is gone")
}

// A volume provisioned by hand has its UUID alone for an id; one on a target that we do not know is left alone.
func TestStaticVolumes(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	id, err := b.targets[1].rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "by-hand", LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(true)})
	require.NoError(t, err)
	v := &csi.Volume{VolumeId: id, VolumeContext: map[string]string{
		"targetType": "TCP", "targetAddr": "127.0.0.1", "targetPort": "4420", "nqn": volume.NQN(id), "model": id,
	}}
	resp, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Equal(t, id, resp.GetPublishContext()["nsUUID"])
	_, err = b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * mib}, Secrets: b.secrets})
	require.NoError(t, err)
	require.NoError(t, b.unpublish(t.Context(), id, nodeA))
	require.NoError(t, b.delete(t.Context(), id))
	assert.Len(t, b.targets[1].lvols(t), 1, "what hands made, hands delete")

	gone := uuid.NewString()
	_, err = b.publish(t.Context(), &csi.Volume{VolumeId: gone}, nodeA)
	requireCode(t, codes.NotFound, err)
	require.NoError(t, b.unpublish(t.Context(), gone, nodeA))

	v.VolumeContext["targetAddr"] = "192.0.2.7"
	resp, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Empty(t, resp.GetPublishContext())
	a, err := readAttachment(v.GetVolumeContext(), resp.GetPublishContext())
	require.NoError(t, err)
	assert.False(t, a.mayFormat, "nobody knows what it holds")
}

func TestMayFormat(t *testing.T) {
	ours, copied, legacy := map[string]string{keyMayFormat: "true"}, map[string]string{keyMayFormat: "false"}, map[string]string{}
	none, some := new(uint64(0)), new(uint64(3))
	for name, c := range map[string]struct {
		volume     volume.Volume
		remembered map[string]string
		want       bool
	}{
		"new and never written":         {volume.Volume{Thin: true, Allocated: none}, ours, true},
		"written":                       {volume.Volume{Thin: true, Allocated: some}, ours, false},
		"a copy, whatever it says":      {volume.Volume{Thin: true, Allocated: none}, copied, false},
		"snapshotted":                   {volume.Volume{Thin: true, Allocated: none, Base: "snap.x"}, ours, false},
		"thick: nobody counts":          {volume.Volume{Allocated: some}, ours, true},
		"old release: nobody counts":    {volume.Volume{Thin: true}, ours, true},
		"spdk-csi's, never written":     {volume.Volume{Thin: true, Allocated: none}, legacy, true},
		"spdk-csi's, written":           {volume.Volume{Thin: true, Allocated: some}, legacy, false},
		"spdk-csi's, restored":          {volume.Volume{Thin: true, Allocated: none, Base: "snapshot-1"}, legacy, false},
		"spdk-csi's, on an old release": {volume.Volume{Thin: true}, legacy, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, mayFormat(c.volume, c.remembered))
			published := map[string]string{"targetType": "tcp", "targetAddr": "h", "targetPort": "1", "nqn": volume.NQN(uuid.NewString()), keyMayFormat: fmt.Sprint(c.want)}
			a, err := readAttachment(c.remembered, published)
			require.NoError(t, err)
			assert.Equal(t, c.want, a.mayFormat)
		})
	}
}

func TestExpandVolume(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
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
	requireCode(t, codes.OutOfRange, err)
	req.CapacityRange = &csi.CapacityRange{LimitBytes: 100 * mib}
	resp, err := b.ControllerExpandVolume(t.Context(), req)
	require.NoError(t, err)
	assert.Equal(t, int64(8*mib), resp.GetCapacityBytes(), "no more than was asked")
	req.CapacityRange = nil
	_, err = b.ControllerExpandVolume(t.Context(), req)
	requireCode(t, codes.InvalidArgument, err)
	req = &csi.ControllerExpandVolumeRequest{VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 5 * mib}}
	_, err = b.ControllerExpandVolume(t.Context(), req)
	requireCode(t, codes.FailedPrecondition, err, "csi.storage.k8s.io/controller-expand-secret-name")
}

func (b *bench) snapshot(t *testing.T, name string, of *csi.Volume) *csi.Snapshot {
	t.Helper()
	resp, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: of.GetVolumeId(), Secrets: b.secrets})
	require.NoError(t, err)
	return resp.GetSnapshot()
}

func TestSnapshots(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	in := func(target, name string) *csi.Volume {
		req := b.request(name, 4*mib)
		req.Parameters = map[string]string{"target": target}
		resp, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err)
		return resp.GetVolume()
	}
	v, w := in("t0", "pvc-1"), in("t1", "pvc-2")
	s := b.snapshot(t, "snapshot-1", v)
	assert.Equal(t, v.GetVolumeId(), s.GetSourceVolumeId())
	assert.Equal(t, int64(4*mib), s.GetSizeBytes())
	assert.True(t, s.GetReadyToUse())
	second := b.snapshot(t, "snapshot-1", v)
	assert.Equal(t, s.GetSnapshotId(), second.GetSnapshotId())
	assert.Equal(t, s.GetCreationTime().AsTime(), second.GetCreationTime().AsTime())
	_, err := b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "snapshot-1", SourceVolumeId: w.GetVolumeId(), Secrets: b.secrets})
	requireCode(t, codes.AlreadyExists, err, "t0")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: v.GetVolumeId()})
	requireCode(t, codes.FailedPrecondition, err, "csi.storage.k8s.io/snapshotter-secret-name")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: "t0:" + uuid.NewString(), Secrets: b.secrets})
	requireCode(t, codes.NotFound, err)
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets, Parameters: map[string]string{"fsType": "ext4"}})
	require.NoError(t, err, "spdk-csi's own example")
	_, err = b.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "y", SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets, Parameters: map[string]string{"fast": "yes"}})
	requireCode(t, codes.InvalidArgument, err, "fast")

	restored := func(name string, size int64) (*csi.CreateVolumeResponse, error) {
		req := b.request(name, size)
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshotId()}}}
		return b.CreateVolume(t.Context(), req)
	}
	c, err := restored("pvc-3", 9*mib)
	require.NoError(t, err)
	assert.Equal(t, int64(12*mib), c.GetVolume().GetCapacityBytes())
	assert.Equal(t, "false", c.GetVolume().GetVolumeContext()[keyMayFormat])
	published, err := b.publish(t.Context(), c.GetVolume(), nodeA)
	require.NoError(t, err)
	assert.Equal(t, "false", published.GetPublishContext()[keyMayFormat])
	require.NoError(t, b.unpublish(t.Context(), c.GetVolume().GetVolumeId(), nodeA))
	_, err = restored("pvc-1", 4*mib)
	requireCode(t, codes.AlreadyExists, err)

	_, err = b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
	requireCode(t, codes.FailedPrecondition, err, "clones")
	require.NoError(t, b.delete(t.Context(), c.GetVolume().GetVolumeId()))
	for range 2 {
		_, err = b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
		require.NoError(t, err)
	}
	_, err = restored("pvc-4", 4*mib)
	requireCode(t, codes.NotFound, err)
}

func TestCloneRefusesThickAndOtherPlaces(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0", "lvs1"))
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"lvstore": "lvs0"}
	v, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	for key, value := range map[string]string{"thin": "false", "lvstore": "lvs1"} {
		req := b.request("pvc-2", 4*mib)
		req.Parameters = map[string]string{key: value}
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolume().GetVolumeId()}}}
		_, err := b.CreateVolume(t.Context(), req)
		requireCode(t, codes.InvalidArgument, err, key)
	}
	assert.Len(t, b.targets[0].lvols(t), 1)
}

func TestNextStoreWhenFull(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0", "lvs1"))
	thick := map[string]string{"thin": "false"}
	for i := range 4 { // each fills most of what is left of one store
		req := b.request(fmt.Sprintf("pvc-%d", i), []int64{300, 300, 80, 80}[i]*mib)
		req.Parameters = thick
		_, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err, i)
	}
	req := b.request("pvc-9", 80*mib)
	req.Parameters = thick
	_, err := b.CreateVolume(t.Context(), req)
	requireCode(t, codes.ResourceExhausted, err, "lvs0", "lvs1")
}

// withCredentials gives a bench's controller credentials of its own.
func (b *bench) withCredentials(t *testing.T) {
	b.credentialsFile = filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(b.credentialsFile, []byte(b.secrets[secretKey]), 0o600))
}

func TestOwnCredentials(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	_, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	requireCode(t, codes.FailedPrecondition, err, CredentialsEnv)
	offered := func() int {
		resp, err := b.ControllerGetCapabilities(t.Context(), nil)
		require.NoError(t, err)
		return len(resp.GetCapabilities())
	}
	before := offered()
	b.withCredentials(t)
	assert.Equal(t, before+3, offered())
	list, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	require.NoError(t, err)
	assert.Equal(t, v.GetVolumeId(), list.GetEntries()[0].GetVolume().GetVolumeId())
	got, err := b.ControllerGetVolume(t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: v.GetVolumeId()})
	require.NoError(t, err)
	assert.Equal(t, v.GetCapacityBytes(), got.GetVolume().GetCapacityBytes())
	b.secrets = nil
	_, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
}

func TestCapacity(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0", "lvs1"), newSimTarget(t, "t1", "lvs0"))
	b.withCredentials(t)
	get := func(parameters map[string]string) *csi.GetCapacityResponse {
		resp, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: parameters})
		require.NoError(t, err)
		return resp
	}
	all := get(nil)
	one := get(map[string]string{"target": "t1"})
	assert.Equal(t, 3*one.GetAvailableCapacity(), all.GetAvailableCapacity())
	assert.Equal(t, int64(4*mib), all.GetMinimumVolumeSize().GetValue())
	req := b.request("pvc-1", 100*mib)
	req.Parameters = map[string]string{"target": "t1", "thin": "false"}
	_, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	left := get(req.Parameters)
	assert.Equal(t, one.GetAvailableCapacity()-100*mib, left.GetAvailableCapacity())
	assert.Equal(t, left.GetAvailableCapacity(), left.GetMaximumVolumeSize().GetValue())
	thin := get(map[string]string{"target": "t1"})
	assert.Equal(t, one.GetMaximumVolumeSize().GetValue(), thin.GetMaximumVolumeSize().GetValue(), "a thin volume may be as large as the store")
	resp, err := b.GetCapacity(t.Context(), &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, true)}})
	require.NoError(t, err)
	assert.Zero(t, resp.GetAvailableCapacity())
}

func TestLists(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	b.withCredentials(t)
	want := map[string]bool{}
	var volumes []*csi.Volume
	for i := range 7 {
		v := b.create(t, fmt.Sprintf("pvc-%d", i), 4*mib)
		volumes = append(volumes, v)
		want[v.GetVolumeId()] = true
	}
	for most := range int32(9) {
		got := map[string]bool{}
		for token := ""; ; {
			resp, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: most, StartingToken: token})
			require.NoError(t, err)
			if most > 0 {
				assert.LessOrEqual(t, len(resp.GetEntries()), int(most))
			}
			for _, e := range resp.GetEntries() {
				assert.False(t, got[e.GetVolume().GetVolumeId()])
				assert.Equal(t, int64(4*mib), e.GetVolume().GetCapacityBytes())
				got[e.GetVolume().GetVolumeId()] = true
			}
			if token = resp.GetNextToken(); token == "" {
				break
			}
		}
		assert.Equal(t, want, got, most)
	}
	_, err := b.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "7"})
	requireCode(t, codes.Aborted, err)
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	requireCode(t, codes.InvalidArgument, err)

	s := b.snapshot(t, "s-1", volumes[0])
	b.snapshot(t, "s-2", volumes[1])
	b.snapshot(t, "s-3", volumes[1])
	count := func(req *csi.ListSnapshotsRequest) int {
		req.Secrets = b.secrets
		resp, err := b.ListSnapshots(t.Context(), req)
		require.NoError(t, err)
		return len(resp.GetEntries())
	}
	assert.Equal(t, 3, count(&csi.ListSnapshotsRequest{}))
	assert.Equal(t, 2, count(&csi.ListSnapshotsRequest{SourceVolumeId: volumes[1].GetVolumeId()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SourceVolumeId: "nope"}))
	assert.Equal(t, 1, count(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SnapshotId: s.GetSnapshotId(), SourceVolumeId: volumes[1].GetVolumeId()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SnapshotId: "t0:" + uuid.NewString()}))
	assert.Equal(t, 0, count(&csi.ListSnapshotsRequest{SnapshotId: volumes[0].GetVolumeId()}), "a volume is none")
	got, err := b.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: s.GetSnapshotId(), Secrets: b.secrets})
	require.NoError(t, err)
	assert.Equal(t, s.GetCreationTime().AsTime(), got.GetSnapshot().GetCreationTime().AsTime())
	_, err = b.GetSnapshot(t.Context(), &csi.GetSnapshotRequest{SnapshotId: volumes[0].GetVolumeId(), Secrets: b.secrets})
	requireCode(t, codes.NotFound, err)

	b.targets[0].Crash()
	_, err = b.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	requireCode(t, codes.Unavailable, err)
}

func TestValidate(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	req := &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.GetVolumeId(), VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: b.secrets}
	resp, err := b.ValidateVolumeCapabilities(t.Context(), req)
	require.NoError(t, err)
	assert.NotNil(t, resp.GetConfirmed())
	req.VolumeCapabilities = append(req.VolumeCapabilities, capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, true))
	resp, err = b.ValidateVolumeCapabilities(t.Context(), req)
	require.NoError(t, err)
	assert.Nil(t, resp.GetConfirmed())
	assert.Contains(t, resp.GetMessage(), "MULTI_NODE_READER_ONLY")
}

func TestCallsOnOneThingDoNotMix(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	id, _ := parseVolumeID(v.GetVolumeId())
	claim := b.locks.claim()
	require.NoError(t, claim.take(id.uuid))
	requireCode(t, codes.Aborted, b.delete(t.Context(), v.GetVolumeId()))
	_, err := b.publish(t.Context(), v, nodeA)
	requireCode(t, codes.Aborted, err)
	_, err = b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	requireCode(t, codes.Aborted, err) // not while it is being deleted
	claim.release()
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))

	one, two := b.locks.claim(), b.locks.claim()
	require.NoError(t, one.share("s"))
	require.NoError(t, two.share("s"))
	require.ErrorIs(t, b.locks.claim().take("s"), errInFlight)
	one.release()
	require.ErrorIs(t, b.locks.claim().take("s"), errInFlight)
	two.release()
	require.NoError(t, one.take("s"))
	require.ErrorIs(t, two.share("s"), errInFlight)
	one.release()
	assert.Empty(t, b.locks.held)
}

func TestConnectionsArePerCredential(t *testing.T) {
	b := newBench(t, newSimTarget(t, "t0", "lvs0"))
	for range 3 {
		b.create(t, "pvc-1", 4*mib)
	}
	assert.Len(t, b.Controller.targets.clients, 1)
	for i := range 2 * maxClients {
		wrong := maps.Clone(b.secrets)
		wrong[secretKey] = strings.Replace(wrong[secretKey], password, fmt.Sprint(i), 1)
		_, err := b.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "x", VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: wrong})
		requireCode(t, codes.PermissionDenied, err)
	}
	assert.LessOrEqual(t, len(b.Controller.targets.clients), maxClients)
	for k := range b.Controller.targets.clients {
		text, err := json.Marshal(k)
		require.NoError(t, err)
		assert.NotContains(t, string(text), password)
	}
}
