package node

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// repeatedByKubelet contains the codes after which kubelet assumes that a volume may be staged,
// repeats NodeStageVolume, and finally calls NodeUnstageVolume (isFinalError in Kubernetes'
// pkg/volume/csi). After all other codes, kubelet forgets the volume.
var repeatedByKubelet = []codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted}

// incompleteStage returns named functions, each of which creates one part of an incomplete staging
// on a fake node.
func incompleteStage(t *testing.T, f *fakeNode, target string) map[string]func() {
	staged := filepath.Join(f.staging, volID)
	write := func(r stageRecord) func() {
		r.VolumeID = volID
		return func() { require.NoError(t, r.write(f.staging)) }
	}
	file := func(name, text string) func() {
		return func() { require.NoError(t, os.WriteFile(filepath.Join(f.staging, name), []byte(text), 0o600)) }
	}
	exported := connect.Export{Transport: connect.TCP, NQN: export.NQN(lvolUUID), NSUUID: lvolUUID}
	other := connect.Export{Transport: connect.TCP, NQN: exported.NQN + "-other", NSUUID: lvolUUID}
	return map[string]func(){
		"record":            write(stageRecord{Export: exported}),
		"target in record":  write(stageRecord{Export: exported, Targets: []string{target}}),
		"other export":      write(stageRecord{Export: other}),
		"other mode":        write(stageRecord{Export: exported, Block: true}),
		"legacy record":     file(legacyRecordName, `{"targetType":"TCP","targetAddr":"192.0.2.1","targetPort":"4420","nqn":"`+exported.NQN+`","model":"`+lvolUUID+`"}`),
		"unreadable record": file(recordName, "{"),
		"connected":         func() { f.connected[exported.NQN] = true },
		"connected other":   func() { f.connected[other.NQN] = true },
		"mounted":           func() { f.mounts[staged] = mount.Point{Path: staged} },
		"published":         func() { f.mounts[target] = mount.Point{Path: target} },
	}
}

// If a volume is still connected or mounted after a failed call, kubelet repeats the call,
// regardless of which step failed and what an earlier call left behind. Objects that are in use
// remain unchanged. All other steps are undone, unless undoing them fails.
func TestFailedStageIsUndone(t *testing.T) {
	states := []struct {
		name  string
		parts []string
		inUse bool
	}{
		{"nothing", nil, false},
		{"connecting", []string{"record"}, false},
		{"connected", []string{"record", "connected"}, false},
		{"mounted", []string{"record", "connected", "mounted"}, true},
		{"mounted, device gone", []string{"record", "mounted"}, true},
		{"published", []string{"target in record", "connected", "mounted", "published"}, true},
		{"published, no longer mounted", []string{"target in record", "connected", "published"}, true},
		{"published once", []string{"target in record", "connected"}, false},
		{"mounted, record lost", []string{"connected", "mounted"}, true},
		{"connected by spdk-csi", []string{"legacy record", "connected"}, false},
		{"connected elsewhere", []string{"other export", "connected other"}, false},
		{"mounted from elsewhere", []string{"other export", "connected other", "mounted"}, true},
		{"connected for raw block", []string{"other mode", "connected"}, false},
		{"connected, record damaged", []string{"unreadable record", "connected"}, true},
	}
	failures := []struct {
		name string
		fail map[string]error
	}{
		{"connect", map[string]error{"connect": connect.ErrRefused}},
		{"mount", map[string]error{"mount": mount.ErrHoldsData}},
		{"grow", map[string]error{"grow after mount": mount.ErrUnsupported}},
		{"connect, disconnect", map[string]error{"connect": connect.ErrRefused, "disconnect": connect.ErrInvalidExport}},
		{"mount, disconnect", map[string]error{"mount": mount.ErrEmptyDevice, "disconnect": mount.ErrInvalid}},
		{"grow, unmount", map[string]error{"grow after mount": errBroken, "unmount": mount.ErrNotEmpty}},
		{"grow, disconnect", map[string]error{"grow after mount": errBroken, "disconnect": errBroken}},
	}
	for _, state := range states {
		for _, failure := range failures {
			t.Run(state.name+"/"+failure.name, func(t *testing.T) {
				n, f := newFakeNode(t)
				target := filepath.Join(t.TempDir(), "target")
				parts := incompleteStage(t, f, target)
				for _, p := range state.parts {
					parts[p]()
				}
				maps.Copy(f.fail, failure.fail)
				connected, mounts := maps.Clone(f.connected), maps.Clone(f.mounts)
				_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
				require.Error(t, err)

				left := len(f.connected)+len(f.mounts) > 0 || f.hasRecord()
				if left {
					assert.Contains(t, repeatedByKubelet, driver.Code(err), "left: %v %v: %v", f.connected, f.mounts, err)
				} else {
					assert.NotContains(t, repeatedByKubelet, driver.Code(err), "nothing is left, so the code is that of the cause: %v", err)
				}
				undoFails := failure.fail["unmount"] != nil || failure.fail["disconnect"] != nil
				switch {
				case state.inUse:
					for path := range mounts {
						assert.Contains(t, f.mounts, path)
					}
					for target := range connected {
						assert.Contains(t, f.connected, target)
					}
				case !undoFails:
					assert.False(t, left, "left: %v %v", f.connected, f.mounts)
				}

				// Afterwards, another process can unstage the volume and stage it again.
				clear(f.fail)
				if state.parts != nil && state.parts[0] == "unreadable record" {
					return // an administrator must clean up, as the error explains
				}
				_, err = f.node().NodeUnstageVolume(t.Context(), f.unstageRequest())
				require.NoError(t, err)
				assert.False(t, f.hasRecord())
				assert.NotContains(t, f.mounts, filepath.Join(f.staging, volID))
				if state.name != "mounted, record lost" {
					assert.Empty(t, f.connected)
				}
				_, err = f.node().NodeStageVolume(t.Context(), f.stageRequest(writer))
				require.NoError(t, err)
			})
		}
	}
}

// An invalid request fails with a final code only if no earlier call has staged the volume.
func TestInvalidRequestsForAStagedVolumeAreRetried(t *testing.T) {
	for name, change := range map[string]func(*csi.NodeStageVolumeRequest){
		"no capability":    func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = nil },
		"malformed export": func(r *csi.NodeStageVolumeRequest) { r.PublishContext["nqn"] = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			n, f := newFakeNode(t)
			req := f.stageRequest(writer)
			change(req)
			_, err := n.NodeStageVolume(t.Context(), req)
			drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
			_, err = n.NodeStageVolume(t.Context(), f.stageRequest(writer))
			require.NoError(t, err)
			_, err = n.NodeStageVolume(t.Context(), req)
			drivertest.RequireCode(t, codes.Aborted, driver.Status(err))
			assert.NotEmpty(t, f.mounts)
			assert.NotEmpty(t, f.connected)
			assert.True(t, f.hasRecord())
		})
	}
}

// If a target path is still mounted after a failed NodePublishVolume, the code makes kubelet repeat
// the call, so that kubelet does not forget the mount.
func TestFailedPublishIsRepeatedWhileMounted(t *testing.T) {
	n, f := newFakeNode(t)
	_, err := n.NodeStageVolume(t.Context(), f.stageRequest(writer))
	require.NoError(t, err)
	target := filepath.Join(t.TempDir(), "target")
	f.fail["bind"] = mount.ErrConflict
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	drivertest.RequireCode(t, codes.AlreadyExists, driver.Status(err))
	f.mounts[target] = mount.Point{Path: target}
	_, err = n.NodePublishVolume(t.Context(), f.publishRequest(writer, target))
	drivertest.RequireCode(t, codes.Aborted, driver.Status(err), target)
	assert.Contains(t, f.mounts, target)
}
