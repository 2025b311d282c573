package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver/mount"
)

// No call of the node answers OK when what it needs of the kernel fails, or while another one works on the volume.
func TestFailuresOfTheNodeAreAnswered(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		block bool
		stale bool // the device was lost
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
		"publish anew": {false, true, []string{"connect", "mount", "unmount", "bind"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodePublishVolume(ctx, f.publishRequest(writer, target))
			return err
		}},
		"publish a device": {true, false, []string{"bind device"}, func(n *Node, f *fakeNode, target string) error {
			_, err := n.NodePublishVolume(ctx, f.publishRequest(block, target))
			return err
		}},
		"publish a device anew": {true, true, []string{"connect", "unmount", "bind device"}, func(n *Node, f *fakeNode, target string) error {
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
			claim := n.locks.claim()
			require.NoError(t, claim.take(volID))
			requireCode(t, codes.Aborted, c.do(n, f, target), "another call")
			claim.release()
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
