package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
	"github.com/spdkgate/spdkgate/driver/request"
)

// causes contains errors of packages connect and mount: at least one for each gRPC code that such
// errors map to.
var causes = []error{
	connect.ErrInvalidExport, connect.ErrNotConnected, connect.ErrUnreachable, connect.ErrRefused, connect.ErrAmbiguous, connect.ErrBusy, connect.ErrTimeout,
	mount.ErrConflict, mount.ErrDamaged, mount.ErrUnreadable, mount.ErrBroken, mount.ErrNotMounted, errBroken, context.Canceled,
}

// If a step of a call fails, the call either undoes its connections and mounts or returns a code
// that makes kubelet retry. kubelet calls NodeUnstageVolume only for volumes that may be staged as
// far as it knows.
func TestIncompleteCleanupReturnsARetryableCode(t *testing.T) {
	for name, c := range map[string]struct {
		block bool
		gone  bool // the device has been removed since the volume was staged
		fresh bool // the volume is not yet staged when the call begins
		steps []string
		call  func(n *Node, f *fakeNode, c *csi.VolumeCapability, target string) error
	}{
		"stage":                                {fresh: true, steps: []string{"connect", "mount", "grow after mount"}, call: stageCall},
		"stage block":                          {fresh: true, block: true, steps: []string{"connect"}, call: stageCall},
		"stage again":                          {gone: true, steps: []string{"connect", "mount"}, call: stageCall},
		"publish":                              {steps: []string{"check", "bind"}, call: publishCall},
		"publish after the device was removed": {gone: true, steps: []string{"connect", "mount", "grow after mount", "unmount", "bind"}, call: publishCall},
		"publish block":                        {block: true, steps: []string{"bind device"}, call: publishCall},
		"publish block after removal":          {block: true, gone: true, steps: []string{"connect", "unmount", "bind device"}, call: publishCall},
		"unpublish":                            {steps: []string{"unmount"}, call: unpublishCall},
		"unstage":                              {steps: []string{"unmount", "disconnect"}, call: unstageCall},
		"unstage block":                        {block: true, steps: []string{"disconnect"}, call: unstageCall},
	} {
		for _, undoFails := range []bool{false, true} {
			for _, step := range c.steps {
				for _, cause := range causes {
					t.Run(fmt.Sprintf("%s/%s/%v/undo fails %v", name, step, cause, undoFails), func(t *testing.T) {
						n, f := newFakeNode(t)
						capability, target := writer, filepath.Join(t.TempDir(), "target")
						if c.block {
							capability = block
						}
						if !c.fresh {
							require.NoError(t, stageCall(n, f, capability, target))
						}
						if name == "unpublish" {
							require.NoError(t, publishCall(n, f, capability, target))
						}
						if c.gone {
							clear(f.connected)
							if !c.block {
								f.mounts[stagePath(f.staging, volID)] = mount.Point{Path: stagePath(f.staging, volID), Stale: true}
							}
							f.mounts[target] = mount.Point{Path: target, Stale: true}
						}
						connectedBefore, mountsBefore := maps.Clone(f.connected), slices.Collect(maps.Keys(f.mounts))
						f.fail[step] = cause
						if undoFails {
							f.fail["disconnect"] = cause
						}
						err := c.call(n, f, capability, target)
						if err == nil {
							return // the call repairs the failure, such as mount.ErrBroken from the check
						}
						code := driver.Code(err)
						final := !slices.Contains(repeatedByKubelet, code)

						switch name {
						case "stage", "stage block", "stage again", "unstage", "unstage block":
							left := len(f.connected) > 0 || f.hasRecord() || len(f.mounts) > 0
							assert.False(t, left && final, "%v with %v and %v left: %v", code, f.connected, f.mounts, err)
						case "unpublish":
							assert.Contains(t, f.mounts, target)
							assert.False(t, final, "%v: %v", code, err)
						default:
							// kubelet assumes that the volume is still staged, but connections and
							// mounts added by this call must not remain.
							added := slices.ContainsFunc(slices.Collect(maps.Keys(f.connected)), func(e string) bool { return !connectedBefore[e] })
							for path := range f.mounts {
								added = added || path == target || !slices.Contains(mountsBefore, path)
							}
							assert.False(t, added && final, "%v with %v and %v: %v", code, f.connected, f.mounts, err)
							assert.True(t, f.hasRecord())
						}

						// A later NodeUnstageVolume in another process cleans up.
						clear(f.fail)
						require.NoError(t, unpublishCall(f.node(), f, capability, target))
						require.NoError(t, unstageCall(f.node(), f, capability, target))
						assert.Empty(t, f.connected)
						assert.Empty(t, f.mounts)
						entries, err := os.ReadDir(f.staging)
						require.NoError(t, err)
						assert.Empty(t, entries)
					})
				}
			}
		}
	}
}

func stageCall(n *Node, f *fakeNode, c *csi.VolumeCapability, _ string) error {
	_, err := n.NodeStageVolume(f.t.Context(), f.stageRequest(c))
	return err
}

func publishCall(n *Node, f *fakeNode, c *csi.VolumeCapability, target string) error {
	_, err := n.NodePublishVolume(f.t.Context(), f.publishRequest(c, target))
	return err
}

func unpublishCall(n *Node, f *fakeNode, _ *csi.VolumeCapability, target string) error {
	_, err := n.NodeUnpublishVolume(f.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: volID, TargetPath: target})
	return err
}

func unstageCall(n *Node, f *fakeNode, _ *csi.VolumeCapability, _ string) error {
	_, err := n.NodeUnstageVolume(f.t.Context(), f.unstageRequest())
	return err
}

// NodeUnstageVolume returns a final code only if no trace of the volume remains, or if another
// volume is staged at the path.
func TestUnstageWithDamagedRecordIsRetried(t *testing.T) {
	n, f := newFakeNode(t)
	require.NoError(t, os.WriteFile(filepath.Join(f.staging, recordName), []byte("{"), 0o600))
	_, err := n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.ErrorIs(t, err, request.ErrLeftBehind)
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, filepath.Join(t.TempDir(), "target")))
	require.ErrorIs(t, err, request.ErrLeftBehind)

	require.NoError(t, stageRecord{VolumeID: "t0:other"}.write(f.staging))
	_, err = n.NodeUnstageVolume(t.Context(), f.unstageRequest())
	require.ErrorIs(t, err, request.ErrConflict)
	require.NotErrorIs(t, err, request.ErrLeftBehind)
}

// After a reboot, the records still exist, because kubelet's directories persist, but nothing is
// connected or mounted.
func TestVolumesAreStagedAgainAfterAReboot(t *testing.T) {
	for name, blockMode := range map[string]bool{"file system": false, "raw block": true} {
		for _, first := range []string{"stage", "publish", "unpublish", "unstage"} {
			for _, published := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/published %v", name, first, published), func(t *testing.T) {
					n, f := newFakeNode(t)
					capability, target := writer, filepath.Join(t.TempDir(), "target")
					if blockMode {
						capability = block
					}
					require.NoError(t, stageCall(n, f, capability, target))
					if published {
						require.NoError(t, publishCall(n, f, capability, target))
					}
					clear(f.connected)
					clear(f.mounts)
					n = f.node()
					require.True(t, f.hasRecord())
					switch first {
					case "stage":
						require.NoError(t, stageCall(n, f, capability, target))
						assert.False(t, f.stage.MayFormat, "it was staged for writing before")
						require.NoError(t, publishCall(n, f, capability, target))
						assert.Contains(t, f.mounts, target)
					case "publish":
						require.NoError(t, publishCall(n, f, capability, target))
						assert.Contains(t, f.mounts, target)
						assert.NotEmpty(t, f.connected)
					}
					require.NoError(t, unpublishCall(n, f, capability, target))
					for range 2 {
						require.NoError(t, unstageCall(n, f, capability, target))
					}
					assert.Empty(t, f.connected)
					assert.Empty(t, f.mounts)
					assert.False(t, f.hasRecord())
				})
			}
		}
	}
}
