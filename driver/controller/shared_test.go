package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
)

var (
	sharedBlock = drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, true)
	readers     = drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, false)
)

func (b *testController) createFor(t *testing.T, name string, c *csi.VolumeCapability) (*csi.Volume, error) {
	req := b.request(name, 4*mib)
	req.VolumeCapabilities = []*csi.VolumeCapability{c}
	resp, err := b.CreateVolume(t.Context(), req)
	return resp.GetVolume(), driver.Status(err)
}

func (b *testController) publishFor(t *testing.T, v *csi.Volume, node string, c *csi.VolumeCapability) error {
	_, err := b.ControllerPublishVolume(t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: v.GetVolumeId(), NodeId: node, VolumeCapability: c, Secrets: b.secrets, VolumeContext: v.GetVolumeContext(),
	})
	return driver.Status(err)
}

// TestLiveMigrationPublishesToBothNodes makes the calls of KubeVirt's live migrations in the same
// order as Kubernetes. The volume is published to the target node before it is unpublished from the
// source, even if calls fail or are repeated in between.
func TestLiveMigrationPublishesToBothNodes(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	b.withCredentials(t)
	v, err := b.createFor(t, "vm-disk", sharedBlock)
	require.NoError(t, err)
	on := func(nodes ...string) {
		t.Helper()
		assert.ElementsMatch(t, nodes, b.published(t)[v.GetVolumeId()])
	}
	publish := func(node string) { t.Helper(); require.NoError(t, b.publishFor(t, v, node, sharedBlock)) }
	unpublish := func(node string) { t.Helper(); require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), node)) }

	publish(nodeA) // the virtual machine starts on nodeA
	publish(nodeB) // a migration that fails
	on(nodeA, nodeB)
	unpublish(nodeB)
	on(nodeA)
	b.targets[0].loseReplyOf("nvmf_subsystem_add_host") // a migration that succeeds, after lost replies
	_ = b.publishFor(t, v, nodeB, sharedBlock)
	publish(nodeB)
	publish(nodeA) // csi-attacher reconciles
	on(nodeA, nodeB)
	b.targets[0].loseReplyOf("nvmf_subsystem_remove_host")
	_ = b.unpublish(t.Context(), v.GetVolumeId(), nodeA)
	unpublish(nodeA)
	unpublish(nodeA)
	on(nodeB)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(b.delete(t.Context(), v.GetVolumeId())), "unpublish")
	publish(nodeA) // the virtual machine migrates back
	unpublish(nodeB)
	on(nodeA)
	unpublish(nodeA)
	require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
}

// A single-node volume is not published to a second node, regardless of the access mode that the
// second call requests, and vice versa.
func TestSingleNodeVolumesAreNotPublishedTwice(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	modes := map[string]*csi.VolumeCapability{
		"block": sharedBlock, "readers": readers, "writer": writer,
		"single writer": drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, false),
		"multi writer":  drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, true),
		"reader":        drivertest.Capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, false),
	}
	for first, c := range modes {
		for second, d := range modes {
			v, err := b.createFor(t, first+" "+second, c)
			require.NoError(t, err)
			require.NoError(t, b.publishFor(t, v, nodeA, c))
			err = b.publishFor(t, v, nodeB, d)
			if request.Shared(c) && request.Shared(d) {
				require.NoError(t, err, first+", "+second)
			} else {
				drivertest.RequireCode(t, codes.FailedPrecondition, err, "unpublish")
			}
			require.NoError(t, b.unpublish(t.Context(), v.GetVolumeId(), ""))
			require.NoError(t, b.delete(t.Context(), v.GetVolumeId()))
		}
	}
	_, err := b.createFor(t, "file system", drivertest.Capability(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, false))
	drivertest.RequireCode(t, codes.InvalidArgument, err, "volumeMode Block")
}

// An iSCSI volume can be attached to only one node at a time. CreateVolume therefore creates
// volumes for several nodes on other targets, or fails.
func TestSharedVolumesAreNotCreatedOverISCSI(t *testing.T) {
	iscsi, tcp := newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0")
	placement := config.Placement{Candidates: 9, ThinOvercommit: 100, ReservePercent: new(0.0)}
	b := newTestControllerOf(t, config.Config{Placement: placement, Nodes: []config.Target{{TargetType: config.TargetISCSI}, {}}}, iscsi, tcp)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		v, err := b.createFor(t, name, sharedBlock)
		require.NoError(t, err)
		assert.Contains(t, v.GetVolumeId(), "t1:")
	}
	only := newTestControllerWith(t, config.TargetISCSI, iscsi)
	only.withCredentials(t)
	_, err := only.createFor(t, "x", readers)
	drivertest.RequireCode(t, codes.InvalidArgument, err, "nvme-tcp")
	v := only.create(t, "x", 4*mib)
	drivertest.RequireCode(t, codes.InvalidArgument, only.publishFor(t, v, nodeA, sharedBlock), "nvme-tcp")
	clone := only.request("clone", 4*mib)
	clone.VolumeCapabilities = []*csi.VolumeCapability{sharedBlock}
	clone.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: v.GetVolumeId()}}}
	_, err = only.CreateVolume(t.Context(), clone)
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "nvme-tcp")
	valid, err := only.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: v.GetVolumeId(), VolumeCapabilities: []*csi.VolumeCapability{sharedBlock}, Secrets: only.secrets})
	require.NoError(t, err)
	assert.Nil(t, valid.GetConfirmed())
	assert.Contains(t, valid.GetMessage(), "nvme-tcp")
	for c, none := range map[*csi.VolumeCapability]bool{sharedBlock: true, writer: false} {
		capacity, err := only.GetCapacity(t.Context(), &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{c}})
		require.NoError(t, err)
		assert.Equal(t, none, capacity.GetAvailableCapacity() == 0)
	}
}
