package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// onlyTarget returns the error of the inventory's only target.
func onlyTarget(all inventory.Inventory, err error) error {
	if err == nil && all.Targets[0].Error != "" {
		err = errors.New(all.Targets[0].Error)
	}
	return err
}

// A read-only call fails if the target fails any of its RPCs. An incomplete response would mislead
// operators and backups.
func TestReadsFailIfTheirTargetFails(t *testing.T) {
	sim := newSimTarget(t, "t0", "lvs0")
	sim.freezes = true
	sim.changes = func(spdkrpc.SpdkgateLvolChangesParams) (spdkrpc.ProxyLvolChanges, error) {
		return changedClusters(1), nil
	}
	b := newTestController(t, sim)
	v := b.create(t, "pvc-1", 16*mib)
	s1, s2 := b.snapshot(t, "s1", v).GetSnapshotId(), b.snapshot(t, "s2", v).GetSnapshotId()
	group, err := b.groupSnapshot(t.Context(), "group-1", v)
	require.NoError(t, err)
	_, err = b.publish(t.Context(), v, nodeA)
	require.NoError(t, err)
	b.withCredentials(t)
	id, err := request.ParseVolumeID(v.GetVolumeId())
	require.NoError(t, err)
	for _, read := range []struct { // in a fixed order, because late RPCs of one read can fail in the next
		name string
		do   func(ctx context.Context) error
		// despite lists the RPCs that may fail without failing the call.
		despite []string
	}{
		{name: "Inventory", do: func(ctx context.Context) error { return onlyTarget(b.Inventory(ctx, nil, time.Minute)) }},
		{name: "InventoryOfFencedNodes", do: func(ctx context.Context) error {
			return onlyTarget(b.InventoryOfFencedNodes(ctx, time.Minute))
		}},
		{name: "InventoryOfSnapshots", do: func(ctx context.Context) error {
			return onlyTarget(b.InventoryOfSnapshots(ctx, []string{s1}, time.Minute))
		}},
		{name: "FindNamed", do: func(ctx context.Context) error {
			snapshot, volume, err := b.FindNamed(ctx, id, "s1", "pvc-1")
			if err == nil && (snapshot != s1 || volume != v.GetVolumeId()) {
				err = fmt.Errorf("found %q and %q", snapshot, volume)
			}
			return err
		}, despite: []string{"bdev_lvol_get_lvols", "bdev_get_bdevs"}}, // other RPCs return the same information
		{name: "Inspect", do: func(ctx context.Context) error {
			is, err := b.Inspect(ctx, id, nodeA)
			if err == nil && is != (inventory.Inspected{SizeBytes: 16 * mib, Published: true}) {
				err = fmt.Errorf("%+v", is)
			}
			return err
		}},
		{name: "changes", do: func(ctx context.Context) error {
			_, err := b.readChanges(ctx, changesQuery{base: s1, target: s2, secrets: b.secrets})
			return err
		}},
		{name: "GetVolumeGroupSnapshot", do: func(ctx context.Context) error {
			_, err := b.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: group.GetGroupSnapshotId(), SnapshotIds: memberIDsOf(group), Secrets: b.secrets})
			return err
		}},
		{name: "GetSnapshot", do: func(ctx context.Context) error {
			_, err := b.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: s1, Secrets: b.secrets})
			return err
		}},
		{name: "ListSnapshots", do: func(ctx context.Context) error {
			_, err := b.ListSnapshots(ctx, &csi.ListSnapshotsRequest{Secrets: b.secrets})
			return err
		}},
		{name: "ListSnapshots of a volume", do: func(ctx context.Context) error {
			_, err := b.ListSnapshots(ctx, &csi.ListSnapshotsRequest{SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
			return err
		}},
		{name: "ListVolumes", do: func(ctx context.Context) error { _, err := b.ListVolumes(ctx, &csi.ListVolumesRequest{}); return err }},
		{name: "GetCapacity", do: func(ctx context.Context) error { _, err := b.GetCapacity(ctx, &csi.GetCapacityRequest{}); return err }},
		{name: "ControllerGetVolume", do: func(ctx context.Context) error {
			_, err := b.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: v.GetVolumeId()})
			return err
		}},
		{name: "ControllerGetVolumeHealth", do: func(ctx context.Context) error {
			_, err := b.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: v.GetVolumeId(), Secrets: b.secrets})
			return err
		}},
		{name: "ControllerListVolumeHealth", do: func(ctx context.Context) error {
			_, err := b.ControllerListVolumeHealth(ctx, &csi.ControllerListVolumeHealthRequest{Secrets: b.secrets})
			return err
		}},
		{name: "space", do: func(ctx context.Context) error {
			services, err := b.openTargets(b.Controller.targets.placement, nil, "")
			require.NoError(t, err)
			_, err = spaceOf(ctx, services[0])
			return err
		}},
	} {
		t.Run(read.name, func(t *testing.T) {
			again := 0
			for skip := 0; ; skip++ {
				before := len(sim.failed())
				sim.Inject(spdktest.Fault{Skip: skip, Do: spdktest.Fail})
				err := read.do(t.Context())
				sim.ClearFaults()
				failed := sim.failed()[before:]
				// The fault can hit a late RPC of an earlier read, which has been canceled.
				none, tolerated := len(failed) == 0, len(failed) > 0 && slices.Contains(read.despite, failed[0])
				if err == nil && again < 3 && (none && skip == 0 && read.name != "changes" || !none && !tolerated) {
					again++
					skip--
					continue
				}
				if none {
					require.NoError(t, err)
					require.True(t, skip > 0 || read.name == "changes")
					return
				}
				if err == nil {
					assert.Contains(t, read.despite, failed[0])
				}
				require.Less(t, skip, 200)
			}
		})
	}
}
