package main

import (
	"context"
	"fmt"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

// A claim represents one volume, with the CSI calls that Kubernetes makes for it.
type claim struct {
	w          *testbed
	name       string
	capability *csi.VolumeCapability
	volume     *csi.Volume
	publish    map[string]string
}

// claim returns a claim for a volume with a file system, or without one for a raw block device.
func (w *testbed) claim(name, filesystem string) *claim {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}}
	if filesystem == "" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: filesystem}}
	}
	return &claim{w: w, name: name, capability: c}
}

func (c *claim) controller() csi.ControllerClient { return csi.NewControllerClient(c.w.conn) }
func (c *claim) node() csi.NodeClient             { return csi.NewNodeClient(c.w.conn) }
func (c *claim) staging() string                  { return c.w.path("staging", c.name) }
func (c *claim) target() string                   { return c.w.path("pods", c.name) }

func (c *claim) create(ctx context.Context, mib int64, source *csi.VolumeContentSource) (*csi.Volume, error) {
	r, err := c.controller().CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: c.name, CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
		VolumeCapabilities: []*csi.VolumeCapability{c.capability}, VolumeContentSource: source,
		Secrets: c.w.secrets(),
	})
	if err != nil {
		return nil, err
	}
	c.volume = r.GetVolume()
	return c.volume, nil
}

func (c *claim) attach(ctx context.Context) error {
	r, err := c.controller().ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: c.volume.GetVolumeId(), NodeId: nodeName, VolumeCapability: c.capability,
		VolumeContext: c.volume.GetVolumeContext(), Secrets: c.w.secrets(),
	})
	c.publish = r.GetPublishContext()
	return err
}

func (c *claim) stage(ctx context.Context) error {
	if err := os.MkdirAll(c.staging(), 0o750); err != nil {
		return err
	}
	_, err := c.node().NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: c.volume.GetVolumeId(), PublishContext: c.publish, StagingTargetPath: c.staging(),
		VolumeCapability: c.capability, VolumeContext: c.volume.GetVolumeContext(),
	})
	return err
}

func (c *claim) mount(ctx context.Context) error {
	if err := os.MkdirAll(c.w.path("pods"), 0o750); err != nil {
		return err
	}
	_, err := c.node().NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: c.volume.GetVolumeId(), PublishContext: c.publish, StagingTargetPath: c.staging(), TargetPath: c.target(),
		VolumeCapability: c.capability, VolumeContext: c.volume.GetVolumeContext(),
	})
	return err
}

func (c *claim) expand(ctx context.Context, mib int64) (bytes int64, err error) {
	r, err := c.controller().ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: c.volume.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20},
		VolumeCapability: c.capability, Secrets: c.w.secrets(),
	})
	return r.GetCapacityBytes(), err
}

func (c *claim) grow(ctx context.Context, mib int64) (before, after uint64, err error) {
	if before, err = fsBytes(c.target()); err != nil {
		return 0, 0, err
	}
	if _, err = c.expand(ctx, mib); err != nil {
		return 0, 0, err
	}
	_, err = c.node().NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
		VolumeId: c.volume.GetVolumeId(), VolumePath: c.target(), StagingTargetPath: c.staging(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: mib << 20}, VolumeCapability: c.capability,
	})
	if err != nil {
		return 0, 0, err
	}
	after, err = fsBytes(c.target())
	if err == nil && after <= before {
		err = fmt.Errorf("the filesystem did not grow: %d bytes before, %d after", before, after)
	}
	return before, after, err
}

// remove unpublishes, unstages and deletes the volume, in Kubernetes' order.
func (c *claim) remove(ctx context.Context) error {
	id := c.volume.GetVolumeId()
	if c.publish != nil && c.w.canMount() {
		if _, err := c.node().NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: c.target()}); err != nil {
			return err
		}
		if _, err := c.node().NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: c.staging()}); err != nil {
			return err
		}
	}
	if _, err := c.controller().ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: nodeName, Secrets: c.w.secrets()}); err != nil {
		return err
	}
	_, err := c.controller().DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id, Secrets: c.w.secrets()})
	return err
}

// canMount reports whether mounts and loop devices are possible; they require root.
func (w *testbed) canMount() bool { return os.Geteuid() == 0 }

func fsBytes(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return s.Blocks * uint64(s.Bsize), nil
}
