package controller

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A controllerCall is a call that succeeds on a target with a volume and its snapshot.
type controllerCall struct {
	holds string // the lock that the call acquires; empty for none
	do    func(b *testController) error
}

// objects contains a volume, its UUID and its snapshot.
type objects struct {
	volume   *csi.Volume
	snapshot *csi.Snapshot
	uuid     string
	group    *csi.VolumeGroupSnapshot
}

// memberOf returns the UUID of a group's first snapshot.
func memberOf(g *csi.VolumeGroupSnapshot) string {
	if g == nil {
		return ""
	}
	id := g.GetSnapshots()[0].GetSnapshotId()
	return id[strings.Index(id, ":")+1:]
}

func newObjects(t *testing.T) (*testController, objects) {
	t.Helper()
	sim := newSimTarget(t, "t0", "lvs0")
	sim.freezes = true
	sim.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		return spdkrpc.ProxyLvolChanges{Bitmap: "Dw==", ClusterSize: mib, Size: 4 * mib}, nil
	}
	b := newTestController(t, sim)
	v := b.create(t, "pvc-1", 4*mib)
	id, err := request.ParseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	group, err := b.groupSnapshot(t.Context(), "group-1", v)
	require.NoError(t, err)
	return b, objects{v, b.snapshot(t, "snapshot-1", v), id.UUID, group}
}

// calls returns all controller calls that carry a secret. The calls with the suffix "by UUID" are
// for a manually provisioned volume, whose id contains no target name.
func (x objects) calls(t *testing.T) map[string]controllerCall {
	ctx, volumeID, snapshot := t.Context(), x.volume.GetVolumeId(), x.snapshot.GetSnapshotId()
	snapshotUUID := snapshot[strings.Index(snapshot, ":")+1:]
	from := func(source *csi.VolumeContentSource) func(b *testController) error {
		return func(b *testController) error {
			req := b.request("pvc-2", 4*mib)
			req.VolumeContentSource = source
			_, err := b.CreateVolume(ctx, req)
			return err
		}
	}
	calls := map[string]controllerCall{
		"CreateVolumeGroupSnapshot by name": {groupClaim(volume.GroupHash("group-3")), func(b *testController) error {
			_, err := b.groupSnapshot(ctx, "group-3", x.volume)
			return err
		}},
		"DeleteVolumeGroupSnapshot": {memberOf(x.group), func(b *testController) error {
			return b.deleteGroup(ctx, x.group.GetGroupSnapshotId(), memberIDsOf(x.group))
		}},
		"DeleteVolumeGroupSnapshot by name": {groupClaim(volume.GroupHash("group-1")), func(b *testController) error {
			return b.deleteGroup(ctx, x.group.GetGroupSnapshotId(), memberIDsOf(x.group))
		}},
		"GetVolumeGroupSnapshot": {"", func(b *testController) error {
			_, err := b.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: x.group.GetGroupSnapshotId(), SnapshotIds: memberIDsOf(x.group), Secrets: b.secrets})
			return err
		}},
		"changes": {snapshotUUID, func(b *testController) error {
			_, err := b.readChanges(ctx, changesQuery{target: snapshot, secrets: b.secrets})
			return err
		}},
		"CreateVolume": {"name pvc-2", from(nil)},
		"CreateVolume from a snapshot": {snapshotUUID, from(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot},
		}})},
		"CreateVolume from a volume": {x.uuid, from(&csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
			Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volumeID},
		}})},
		"DeleteSnapshot": {snapshotUUID, func(b *testController) error {
			_, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: snapshot, Secrets: b.secrets})
			return err
		}},
		"GetSnapshot": {"", func(b *testController) error {
			_, err := b.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: snapshot, Secrets: b.secrets})
			return err
		}},
		"ListSnapshots": {"", func(b *testController) error {
			_, err := b.ListSnapshots(ctx, &csi.ListSnapshotsRequest{Secrets: b.secrets})
			return err
		}},
		"ListSnapshots of one id": {"", func(b *testController) error {
			_, err := b.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SnapshotId: snapshot, Secrets: b.secrets})
			return err
		}},
		"DeleteVolume": {x.uuid, func(b *testController) error { return b.delete(ctx, volumeID) }},
	}
	for suffix, id := range map[string]string{"": volumeID, " by UUID": x.uuid} {
		calls["ControllerPublishVolume"+suffix] = controllerCall{x.uuid, func(b *testController) error {
			_, err := b.publish(ctx, &csi.Volume{VolumeId: id}, nodeA)
			return err
		}}
		calls["ControllerUnpublishVolume"+suffix] = controllerCall{x.uuid, func(b *testController) error { return b.unpublish(ctx, id, nodeA) }}
		calls["ControllerExpandVolume"+suffix] = controllerCall{x.uuid, func(b *testController) error {
			_, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * mib}, Secrets: b.secrets})
			return err
		}}
		calls["ValidateVolumeCapabilities"+suffix] = controllerCall{"", func(b *testController) error {
			_, err := b.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: b.secrets})
			return err
		}}
		calls["ControllerModifyVolume"+suffix] = controllerCall{x.uuid, func(b *testController) error {
			_, err := b.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"qosIOPS": "1000"}, Secrets: b.secrets})
			return err
		}}
		calls["ControllerGetVolumeHealth"+suffix] = controllerCall{"", func(b *testController) error {
			_, err := b.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id, Secrets: b.secrets})
			return err
		}}
		calls["CreateVolumeGroupSnapshot"+suffix] = controllerCall{x.uuid, func(b *testController) error {
			_, err := b.groupSnapshot(ctx, "group-2", &csi.Volume{VolumeId: id})
			return err
		}}
		calls["CreateSnapshot"+suffix] = controllerCall{x.uuid, func(b *testController) error {
			_, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "snapshot-2", SourceVolumeId: id, Secrets: b.secrets})
			return err
		}}
	}
	return calls
}

// ownCalls returns the calls without a secret. The controller uses its own credentials for these
// calls.
func (x objects) ownCalls(t *testing.T) map[string]controllerCall {
	ctx := t.Context()
	return map[string]controllerCall{
		"ListVolumes": {"", func(b *testController) error { _, err := b.ListVolumes(ctx, &csi.ListVolumesRequest{}); return err }},
		"GetCapacity": {"", func(b *testController) error { _, err := b.GetCapacity(ctx, &csi.GetCapacityRequest{}); return err }},
		"ControllerGetVolume": {"", func(b *testController) error {
			_, err := b.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: x.volume.GetVolumeId()})
			return err
		}},
		"ControllerGetVolume by UUID": {"", func(b *testController) error {
			_, err := b.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: x.uuid})
			return err
		}},
	}
}

// No call returns OK without credentials, with wrong credentials, without its target, or while
// another call is working on the same object.
func TestRefusedCallsNeverReturnOK(t *testing.T) {
	b, x := newObjects(t)
	right := b.secrets
	calls, own := x.calls(t), x.ownCalls(t)
	b.secrets = nil
	for name, c := range calls {
		drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(c.do(b)), "no credentials")
		assert.NotEmpty(t, name)
	}
	for _, c := range own {
		drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(c.do(b)), config.CredentialsEnv)
	}
	wrong := map[string]string{config.SecretKey: strings.ReplaceAll(right[config.SecretKey], password, "wrong")}
	b.secrets = wrong
	for name, c := range calls {
		require.Equal(t, codes.Unauthenticated, driver.Code(c.do(b)), name)
	}
	b.withCredentials(t)
	for name, c := range own {
		require.Equal(t, codes.Unauthenticated, driver.Code(c.do(b)), name)
	}
	b.credentialsFile = filepath.Join(t.TempDir(), "missing")
	for _, c := range own {
		drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(c.do(b)), "read the controller's credentials")
	}
	b.secrets = right
	b.withCredentials(t)
	for name, c := range calls {
		if c.holds == "" {
			continue
		}
		claim := b.locks.Claim()
		require.NoError(t, claim.Take(c.holds))
		require.Equal(t, codes.Aborted, driver.Code(c.do(b)), name)
		claim.Release()
		require.Empty(t, b.locks.Held(), "%s releases its locks", name)
	}
	maps.Copy(calls, own)
	b.targets[0].Crash()
	for name, c := range calls {
		require.Equal(t, codes.Unavailable, driver.Code(c.do(b)), name)
	}
	require.NoError(t, b.targets[0].Restart())
}

// askedAgain maps a CSI call to the methods that it calls early, before it knows whether it needs
// the responses. If it turns out to need the response to a failed call, it calls that method again.
var askedAgain = map[string][]string{
	"CreateVolume":                 {"bdev_get_bdevs"},
	"CreateSnapshot":               {"bdev_get_bdevs", "bdev_lvol_get_lvols", "bdev_wait_for_examine", "bdev_lvol_get_lvstores"},
	"CreateSnapshot by UUID":       {"bdev_get_bdevs", "bdev_lvol_get_lvols", "bdev_wait_for_examine", "bdev_lvol_get_lvstores"},
	"CreateVolume from a snapshot": {"bdev_get_bdevs", "spdk_get_version"},
	"CreateVolume from a volume":   {"bdev_get_bdevs", "spdk_get_version"},
}

// If a step of a call fails on the target, the call returns OK only if the step was not needed.
func TestFailingTargetFailsTheCall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	all := func(x objects) map[string]controllerCall {
		calls := x.calls(t)
		maps.Copy(calls, x.ownCalls(t))
		return calls
	}
	for name := range all(objects{volume: &csi.Volume{}, snapshot: &csi.Snapshot{}}) {
		t.Run(name, func(t *testing.T) {
			for skip := 0; ; skip++ {
				b, x := newObjects(t) // use new objects each time, because a repeated call needs fewer steps
				b.withCredentials(t)
				do := all(x)[name].do
				before := len(b.targets[0].failed())
				b.targets[0].Inject(spdktest.Fault{Skip: skip, Do: spdktest.Fail})
				err := do(b)
				b.targets[0].ClearFaults()
				failed := b.targets[0].failed()[before:]
				switch {
				case len(failed) == 0:
					require.NoError(t, err)
					require.Positive(t, skip)
					return
				case failed[0] == "nvmf_subsystem_get_controllers":
					require.NoError(t, err, "another call shows that the volume is not exported")
				case failed[0] == "nvmf_subsystem_add_listener" && err == nil:
					// If the target has no transport yet, the first attempt always fails and is
					// retried.
				case err == nil && slices.Contains(askedAgain[name], failed[0]):
				case strings.HasPrefix(name, "Delete") && err == nil:
					// The RPCs that follow the deletion only look for leftovers of other volumes.
					for _, left := range b.targets[0].lvols(t) {
						kind := "DeleteVolume"
						switch {
						case strings.HasPrefix(left, "lvs0/snap."+volume.GroupHash("group-1")):
							kind = "DeleteVolumeGroupSnapshot"
						case strings.HasPrefix(left, "lvs0/snap."):
							kind = "DeleteSnapshot"
						}
						require.NotEqual(t, kind, strings.TrimSuffix(name, " by name"), "%s still exists after %s failed", left, failed)
					}
				default:
					require.Error(t, err, "%s failed", failed)
				}
			}
		})
	}
}

// The error for an incomplete request names the missing field.
func TestIncompleteRequestsNameTheMissingField(t *testing.T) {
	b, x := newObjects(t)
	id, ctx := x.volume.GetVolumeId(), t.Context()
	neither := &csi.VolumeCapability{AccessMode: writer.GetAccessMode()}
	for what, err := range map[string]func() error{
		"CreateVolume: neither block nor mount": func() error {
			req := b.request("x", 1)
			req.VolumeCapabilities[0] = neither
			_, err := b.CreateVolume(ctx, req)
			return err
		},
		"CreateVolume: content_source has no id": func() error {
			req := b.request("x", 1)
			req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{}}
			_, err := b.CreateVolume(ctx, req)
			return err
		},
		"ControllerExpandVolume: volume_id": func() error {
			_, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{CapacityRange: &csi.CapacityRange{}})
			return err
		},
		"ControllerExpandVolume: neither block nor mount": func() error {
			_, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 8 * mib}, VolumeCapability: neither, Secrets: b.secrets})
			return err
		},
		"ControllerExpandVolume: negative": func() error {
			_, err := b.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: -1}, VolumeCapability: writer, Secrets: b.secrets})
			return err
		},
		"ControllerPublishVolume: volume_id": func() error { _, err := b.publish(ctx, &csi.Volume{}, nodeA); return err },
		"ControllerPublishVolume: node_id":   func() error { _, err := b.publish(ctx, x.volume, ""); return err },
		"ControllerPublishVolume: readonly": func() error {
			_, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: nodeA, VolumeCapability: writer, Readonly: true, Secrets: b.secrets})
			return err
		},
		"ControllerPublishVolume: volume_capability": func() error {
			_, err := b.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: id, NodeId: nodeA, Secrets: b.secrets})
			return err
		},
		"ControllerUnpublishVolume: volume_id": func() error { return b.unpublish(ctx, "", nodeA) },
		"ValidateVolumeCapabilities: volume_id": func() error {
			_, err := b.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeCapabilities: []*csi.VolumeCapability{writer}})
			return err
		},
		"ValidateVolumeCapabilities: volume_capabilities": func() error {
			_, err := b.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: id, Secrets: b.secrets})
			return err
		},
		"GetCapacity: neither block nor mount": func() error {
			_, err := b.GetCapacity(ctx, &csi.GetCapacityRequest{VolumeCapabilities: []*csi.VolumeCapability{neither}})
			return err
		},
		"GetCapacity: fsType": func() error {
			_, err := b.GetCapacity(ctx, &csi.GetCapacityRequest{Parameters: map[string]string{"fsType": "ntfs"}})
			return err
		},
		"GetCapacity: not a valid label": func() error {
			_, err := b.GetCapacity(ctx, &csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"zone": "a b"}}})
			return err
		},
		"CreateSnapshot: name": func() error {
			_, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{SourceVolumeId: id, Secrets: b.secrets})
			return err
		},
		"CreateSnapshot: source_volume_id": func() error {
			_, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "x", Secrets: b.secrets})
			return err
		},
		"DeleteSnapshot: snapshot_id": func() error { _, err := b.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{}); return err },
		"GetSnapshot: snapshot_id":    func() error { _, err := b.GetSnapshot(ctx, &csi.GetSnapshotRequest{}); return err },
	} {
		_, field, _ := strings.Cut(what, ": ")
		err := err()
		require.Equal(t, codes.InvalidArgument, driver.Code(err), what)
		require.ErrorContains(t, err, field, what)
	}

	for what, err := range map[string]func() error{
		"CreateSnapshot": func() error {
			_, err := b.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "x", SourceVolumeId: "nope", Secrets: b.secrets})
			return err
		},
		"CreateVolume from a volume provisioned by hand": func() error {
			req := b.request("x", 4*mib)
			req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: x.uuid}}}
			_, err := b.CreateVolume(ctx, req)
			return err
		},
		"ValidateVolumeCapabilities": func() error {
			_, err := b.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: "nope", VolumeCapabilities: []*csi.VolumeCapability{writer}, Secrets: b.secrets})
			return err
		},
		"GetSnapshot": func() error {
			_, err := b.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: x.uuid, Secrets: b.secrets})
			return err
		},
	} {
		require.Equal(t, codes.NotFound, driver.Code(err()), what)
	}
	require.NoError(t, b.unpublish(ctx, id, "no node/at all"), "no node has this id, so no volume is published to it")
}
