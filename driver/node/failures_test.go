package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// No call to the node service returns OK if a step on the node fails, or while another call is
// working on the volume.
func TestFailedStepFailsTheCall(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		block bool
		stale bool // whether the device was removed
		steps []string
		do    func(n *Node, f *fakeNode, target string) error
	}{
		"stage": {false, false, []string{"connect", "mount"}, func(n *Node, f *fakeNode, _ string) error {
			_, err := n.NodeStageVolume(ctx, f.stageRequest(writer))
			return err
		}},
		"unstage": {false, false, []string{"unmount", "disconnect"}, func(n *Node, f *fakeNode, _ string) error {
			_, err := n.NodeUnstageVolume(ctx, f.unstageRequest())
			return err
		}},
		"publish": {false, false, []string{"check", "bind"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodePublishVolume(ctx, f.publishRequest(writer, target))
			return err
		}},
		"publish again": {false, true, []string{"connect", "mount", "unmount", "bind"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodePublishVolume(ctx, f.publishRequest(writer, target))
			return err
		}},
		"publish a device": {true, false, []string{"bind device"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodePublishVolume(ctx, f.publishRequest(block, target))
			return err
		}},
		"publish a device again": {true, true, []string{"connect", "unmount", "bind device"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodePublishVolume(ctx, f.publishRequest(block, target))
			return err
		}},
		"unpublish": {false, false, []string{"unmount"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volID, TargetPath: target})
			return err
		}},
		"expand": {false, false, []string{"rescan 8192", "grow"}, func(n *Node, f *fakeNode, _ string) error {
			size, err := n.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{
				VolumeId: volID, VolumePath: stagePath(f.staging, volID), StagingTargetPath: f.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 8192},
			})
			if err == nil && size.GetCapacityBytes() != 42 {
				t.Errorf("expanded to %d bytes", size.GetCapacityBytes())
			}
			return err
		}},
		"expand a device": {true, false, []string{"rescan 8192", "stats"}, func(n *Node, f *fakeNode, target string) error {
			f.mounts[target] = mount.Point{Path: target, Block: true}
			_, err := n.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: volID, VolumePath: target, StagingTargetPath: f.staging, CapacityRange: &csi.CapacityRange{RequiredBytes: 8192}})
			return err
		}},
	} {
		staged := func(t *testing.T) (n *Node, f *fakeNode, target string) {
			n, f = newFakeNode(t)
			capability := writer
			if c.block {
				capability = block
			}
			_, err := n.NodeStageVolume(ctx, f.stageRequest(capability))
			require.NoError(t, err)
			target = filepath.Join(t.TempDir(), "target")
			if c.stale {
				f.mounts[stagePath(f.staging, volID)] = mount.Point{Stale: true}
				f.mounts[target] = mount.Point{Path: target, Stale: true}
				clear(f.connected)
			}
			return n, f, target
		}
		t.Run(name, func(t *testing.T) {
			n, f, target := staged(t)
			require.NoError(t, c.do(n, f, target))
			n, f, target = staged(t)
			claim := n.locks.Claim()
			require.NoError(t, claim.Take(volID))
			drivertest.RequireCode(t, codes.Aborted, driver.Status(c.do(n, f, target)), "another call")
			claim.Release()
			require.NoError(t, c.do(n, f, target))
			for _, step := range c.steps {
				n, f, target := staged(t)
				f.fail[step] = errBroken
				require.ErrorIs(t, c.do(n, f, target), errBroken, step)
			}
			if name != "unpublish" {
				n, f, target := staged(t)
				path := filepath.Join(f.staging, recordName)
				require.NoError(t, os.Remove(path))
				require.NoError(t, os.Mkdir(path, 0o700))
				require.ErrorContains(t, c.do(n, f, target), "read the stage record")
			}
		})
	}
}

// The error for an incomplete request names the missing field.
func TestIncompleteRequestsNameTheMissingField(t *testing.T) {
	n, f := newFakeNode(t)
	id, ctx := volID, t.Context()
	for what, err := range map[string]func() error{
		"NodeGetVolumeHealth: volume_id": func() error { _, err := n.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{}); return err },
		"NodeUnstageVolume: volume_id": func() error {
			_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{StagingTargetPath: "/x"})
			return err
		},
		"NodeUnstageVolume: staging_target_path": func() error {
			_, err := n.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id})
			return err
		},
		"NodePublishVolume: staging_target_path": func() error {
			req := f.publishRequest(writer, "/x")
			req.StagingTargetPath = ""
			_, err := n.NodePublishVolume(ctx, req)
			return err
		},
		"NodePublishVolume: target_path":       func() error { _, err := n.NodePublishVolume(ctx, f.publishRequest(writer, "")); return err },
		"NodePublishVolume: volume_capability": func() error { _, err := n.NodePublishVolume(ctx, f.publishRequest(nil, "/x")); return err },
		"NodeUnpublishVolume: target_path": func() error {
			_, err := n.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id})
			return err
		},
		"NodeGetVolumeStats: volume_id": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumePath: "/x"})
			return err
		},
		"NodeGetVolumeStats: volume_path": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id})
			return err
		},
		"NodeExpandVolume: volume_path": func() error {
			_, err := n.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: id})
			return err
		},
	} {
		_, field, _ := strings.Cut(what, ": ")
		err := err()
		require.Equal(t, codes.InvalidArgument, driver.Code(err), what)
		require.ErrorContains(t, err, field, what)
	}
	assert.Empty(t, f.log, "nothing was done")

	for what, err := range map[string]func() error{
		"NodeGetVolumeStats, path": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: id, VolumePath: "x"})
			return err
		},
		"NodeGetVolumeStats, id": func() error {
			_, err := n.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: "..", VolumePath: "/x"})
			return err
		},
	} {
		require.Equal(t, codes.NotFound, driver.Code(err()), what)
	}
}
