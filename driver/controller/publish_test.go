package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func TestPublishIsRepeatable(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	v := b.create(t, "pvc-1", 4*mib)
	id, _ := request.ParseVolumeID(v.GetVolumeId())
	for range 2 {
		resp, err := b.publish(t.Context(), v, nodeA)
		require.NoError(t, err)
		assert.Equal(t, "true", resp.GetPublishContext()[request.KeyMayFormat])
		e, err := connect.ParseExport(resp.GetPublishContext(), nil)
		require.NoError(t, err)
		assert.Equal(t, connect.Export{Transport: connect.TCP, Address: "127.0.0.1", Port: "4420", NQN: export.NQN(id.UUID), NSUUID: id.UUID, SizeBytes: 4 * mib, Multipath: true}, e)
	}
	_, err := b.publish(t.Context(), v, nodeB)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), connect.HostOf(nodeA).NQN)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(b.delete(t.Context(), v.GetVolumeId())), "unpublish")
	_, err = b.publish(t.Context(), v, "no node/at all")
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
	_, err = b.publish(t.Context(), &csi.Volume{VolumeId: "t0:" + uuid.NewString()}, nodeA)
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
	for range 2 {
		require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	}
	_, err = b.publish(t.Context(), v, nodeB)
	require.NoError(t, err)
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), ""))
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA), "the volume is deleted")
}

// The id of a manually provisioned volume is only its UUID. If the volume's target is not
// configured, the driver does nothing.
func TestStaticVolumeIDIsABareUUID(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"))
	id, err := b.targets[1].rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "by-hand", LvsName: new("lvs0"), SizeInMiB: 4, ThinProvision: new(true)})
	require.NoError(t, err)
	v := &csi.Volume{VolumeId: id, VolumeContext: map[string]string{
		"targetType": "TCP", "targetAddr": "127.0.0.1", "targetPort": "4420", "nqn": export.NQN(id), "model": id,
	}}
	resp, err := b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Equal(t, id, resp.GetPublishContext()["nsUUID"])
	_, err = b.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * mib}, Secrets: b.secrets})
	require.NoError(t, err)
	require.NoError(t, b.unpublish(t.Context(), id, nodeA))
	require.NoError(t, b.delete(t.Context(), id))
	assert.Len(t, b.targets[1].lvols(t), 1, "the driver does not delete volumes that were provisioned by hand")

	gone := uuid.NewString()
	_, err = b.publish(t.Context(), &csi.Volume{VolumeId: gone}, nodeA)
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
	require.NoError(t, b.unpublish(t.Context(), gone, nodeA))

	v.VolumeContext["targetAddr"] = "192.0.2.7"
	resp, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	assert.Empty(t, resp.GetPublishContext())
}

// A volume may be formatted if its target knows that it was never written, or does not know whether
// it was, unless the context of the volume forbids formatting.
func TestPristineVolumeMayBeFormatted(t *testing.T) {
	ours, copied, legacy := map[string]string{request.KeyMayFormat: "true"}, map[string]string{request.KeyMayFormat: "false"}, map[string]string{}
	for name, c := range map[string]struct {
		pristine, known bool
		volumeContext   map[string]string
		want            bool
	}{
		"never written":               {true, true, ours, true},
		"written":                     {false, true, ours, false},
		"a copy that was not written": {true, true, copied, false},
		"target does not know":        {false, false, ours, true},
		"spdk-csi's, never written":   {true, true, legacy, true},
		"spdk-csi's, written":         {false, true, legacy, false},
		"spdk-csi's, not known":       {false, false, legacy, true},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, mayFormat(c.pristine, c.known, c.volumeContext))
		})
	}
}

// The name of a thick volume on its target records that the volume has been attached. Such a volume
// is never formatted again unless an administrator restores the original name.
func TestThickVolumeIsFormattedOnlyDuringItsFirstAttachment(t *testing.T) {
	target := newSimTarget(t, "t0", "lvs0")
	b := newTestController(t, target)
	req := b.request("pvc-1", 4*mib)
	req.Parameters = map[string]string{"thin": "false"}
	created, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	v := created.GetVolume()
	mayFormat := func(node string) string {
		resp, err := b.publish(t.Context(), v, node)
		require.NoError(t, err)
		return resp.GetPublishContext()[request.KeyMayFormat]
	}
	for range 2 {
		require.Equal(t, "true", mayFormat(nodeA), "first attachment")
	}
	for range 2 {
		require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	}
	require.Equal(t, "false", mayFormat(nodeB))
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeB))
	again, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err, "found under its new name")
	require.Equal(t, v.GetVolumeId(), again.GetVolume().GetVolumeId())

	// The manual describes this rename for a volume that was attached but never staged.
	require.NoError(t, target.rpc.BdevLvolRename(t.Context(), spdkrpc.BdevLvolRenameParams{OldName: "lvs0/pvc-1.used", NewName: "pvc-1"}))
	require.Equal(t, "true", mayFormat(nodeA))
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), ""))
	require.Equal(t, "false", mayFormat(nodeA), "it was detached from all nodes")
	require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), nodeA))
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
}
