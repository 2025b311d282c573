package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// snapshotAll simulates spdkgate_lvol_snapshot, but does not freeze the volumes.
func (s *simTarget) snapshotAll(ctx context.Context, _ string, params, result any) error {
	var p spdkrpc.SpdkgateLvolSnapshotParams
	if err := json.Unmarshal(params.(json.RawMessage), &p); err != nil {
		return err
	}
	taken := []spdkrpc.ProxySnapshot{}
	for _, r := range p.Snapshots {
		id, err := s.rpc.BdevLvolSnapshot(ctx, spdkrpc.BdevLvolSnapshotParams{LvolName: r.LvolName, SnapshotName: r.SnapshotName})
		if err != nil {
			return err
		}
		taken = append(taken, spdkrpc.ProxySnapshot{UUID: id})
	}
	text, err := json.Marshal(taken)
	*result.(*json.RawMessage) = text
	return err
}

// passBarrier responds as if all volumes had been frozen simultaneously. The tests in driver/volume
// cover how the proxies wait for each other.
func passBarrier(_ context.Context, _ string, _, result any) error {
	*result.(*json.RawMessage) = json.RawMessage("true")
	return nil
}

func (b *testController) groupSnapshot(ctx context.Context, name string, of ...*csi.Volume) (*csi.VolumeGroupSnapshot, error) {
	req := &csi.CreateVolumeGroupSnapshotRequest{Name: name, Secrets: b.secrets}
	for _, v := range of {
		req.SourceVolumeIds = append(req.SourceVolumeIds, v.GetVolumeId())
	}
	resp, err := b.CreateVolumeGroupSnapshot(ctx, req)
	return resp.GetGroupSnapshot(), err
}

func (b *testController) deleteGroup(ctx context.Context, id string, members []string) error {
	_, err := b.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: members, Secrets: b.secrets})
	return err
}

func memberIDsOf(g *csi.VolumeGroupSnapshot) (ids []string) {
	for _, s := range g.GetSnapshots() {
		ids = append(ids, s.GetSnapshotId())
	}
	return ids
}

func TestGroupSnapshotsAreTakenAndDeleted(t *testing.T) {
	sim := newSimTarget(t, "t0", "lvs0", "lvs1")
	sim.freezes = true
	b := newTestController(t, sim, newSimTarget(t, "t1", "lvs0"))
	in := func(target, name string) *csi.Volume {
		req := b.request(name, 4*mib)
		req.Parameters = map[string]string{"target": target}
		resp, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err)
		return resp.GetVolume()
	}
	v, w, elsewhere := in("t0", "pvc-1"), in("t0", "pvc-2"), in("t1", "pvc-3")
	g, err := b.groupSnapshot(t.Context(), "group-1", v, w)
	require.NoError(t, err)
	require.Len(t, g.GetSnapshots(), 2)
	assert.True(t, g.GetReadyToUse())
	assert.LessOrEqual(t, len(g.GetGroupSnapshotId()), 128)
	var sources []string
	for _, s := range g.GetSnapshots() {
		assert.Equal(t, g.GetGroupSnapshotId(), s.GetGroupSnapshotId())
		assert.Equal(t, g.GetCreationTime().AsTime(), s.GetCreationTime().AsTime())
		sources = append(sources, s.GetSourceVolumeId())
	}
	assert.ElementsMatch(t, []string{v.GetVolumeId(), w.GetVolumeId()}, sources)
	again, err := b.groupSnapshot(t.Context(), "group-1", w, v)
	require.NoError(t, err)
	assert.Equal(t, g.String(), again.String())
	got, err := b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: memberIDsOf(g), Secrets: b.secrets})
	require.NoError(t, err)
	assert.Equal(t, g.String(), got.GetGroupSnapshot().String())

	// Members can be listed and restored, but not deleted individually.
	list, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 1)
	member := list.GetEntries()[0].GetSnapshot()
	assert.Equal(t, g.GetGroupSnapshotId(), member.GetGroupSnapshotId())
	_, err = b.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: member.GetSnapshotId(), Secrets: b.secrets})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "group")
	req := b.request("pvc-4", 9*mib)
	req.VolumeContentSource = fromSnapshot(member)
	restored, err := b.CreateVolume(t.Context(), req)
	require.NoError(t, err)
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(b.deleteGroup(t.Context(), g.GetGroupSnapshotId(), memberIDsOf(g))), "clones")
	require.NoError(t, b.delete(t.Context(), restored.GetVolume().GetVolumeId()))

	for name, c := range map[string]struct {
		of   []*csi.Volume
		name string
		code codes.Code
		text string
	}{
		"no name":         {[]*csi.Volume{v}, "", codes.InvalidArgument, "name"},
		"no volumes":      {nil, "g", codes.InvalidArgument, "source_volume_ids"},
		"twice":           {[]*csi.Volume{v, v}, "g", codes.InvalidArgument, "twice"},
		"missing":         {[]*csi.Volume{v, {VolumeId: "t0:" + uuid.NewString()}}, "g", codes.NotFound, ""},
		"no id":           {[]*csi.Volume{{VolumeId: "x"}}, "g", codes.NotFound, ""},
		"other volumes":   {[]*csi.Volume{v}, "group-1", codes.AlreadyExists, "group-1"},
		"one old proxy":   {[]*csi.Volume{v, elsewhere}, "g", codes.FailedPrecondition, "upgrade spdk-proxy"},
		"an old proxy":    {[]*csi.Volume{elsewhere}, "g", codes.FailedPrecondition, "upgrade spdk-proxy"},
		"too many":        {manyVolumes(33), "g", codes.FailedPrecondition, "33"},
		"unknown target":  {[]*csi.Volume{{VolumeId: "t9:" + uuid.NewString()}}, "g", codes.FailedPrecondition, "t9"},
		"another's claim": {[]*csi.Volume{w}, "claimed", codes.Aborted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.name == "claimed" {
				claim := b.locks.Claim()
				defer claim.Release()
				id, err := request.ParseVolumeID(w.GetVolumeId())
				require.NoError(t, err)
				require.NoError(t, claim.Take(id.UUID))
			}
			_, err := b.groupSnapshot(t.Context(), c.name, c.of...)
			drivertest.RequireCode(t, c.code, driver.Status(err), c.text)
		})
	}
	_, err = b.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{v.GetVolumeId()}, Secrets: b.secrets, Parameters: map[string]string{"fast": "yes"}})
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "fast")
	_, err = b.CreateVolumeGroupSnapshot(t.Context(), &csi.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{v.GetVolumeId()}})
	drivertest.RequireCode(t, codes.FailedPrecondition, driver.Status(err), "csi.storage.k8s.io/group-snapshotter-secret-name")

	for name, ids := range map[string][]string{"none": nil, "one too few": memberIDsOf(g)[:1], "no snapshot's": {"x"}, "another target's": {"t1:" + uuid.NewString()}, "a volume's": append(memberIDsOf(g), v.GetVolumeId())} {
		_, err = b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: ids, Secrets: b.secrets})
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err))
		drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(b.deleteGroup(t.Context(), g.GetGroupSnapshotId(), ids)))
		assert.Len(t, sim.lvols(t), 4, name)
	}
	for range 2 {
		require.NoError(t, b.deleteGroup(t.Context(), g.GetGroupSnapshotId(), memberIDsOf(g)))
	}
	assert.Len(t, sim.lvols(t), 2)
	_, err = b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: memberIDsOf(g), Secrets: b.secrets})
	drivertest.RequireCode(t, codes.NotFound, driver.Status(err))
}

func TestGroupSnapshotsSpanSeveralTargets(t *testing.T) {
	sims := []*simTarget{newSimTarget(t, "t0", "lvs0"), newSimTarget(t, "t1", "lvs0"), newSimTarget(t, "t2", "lvs0")}
	for _, s := range sims {
		s.freezes = true
	}
	b := newTestController(t, sims...)
	var volumes []*csi.Volume
	for i, s := range sims {
		req := b.request(fmt.Sprint("pvc-", i), 4*mib)
		req.Parameters = map[string]string{"target": s.name}
		resp, err := b.CreateVolume(t.Context(), req)
		require.NoError(t, err)
		volumes = append(volumes, resp.GetVolume())
	}
	g, err := b.groupSnapshot(t.Context(), "group-1", volumes[0], volumes[1])
	require.NoError(t, err)
	require.Len(t, g.GetSnapshots(), 2)
	assert.LessOrEqual(t, len(g.GetGroupSnapshotId()), 128)
	again, err := b.groupSnapshot(t.Context(), "group-1", volumes[1], volumes[0])
	require.NoError(t, err)
	assert.Equal(t, g.String(), again.String())
	get := func(ids []string) error {
		got, err := b.GetVolumeGroupSnapshot(t.Context(), &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: g.GetGroupSnapshotId(), SnapshotIds: ids, Secrets: b.secrets})
		if err == nil {
			assert.Equal(t, g.String(), got.GetGroupSnapshot().String())
		}
		return driver.Status(err)
	}
	require.NoError(t, get(memberIDsOf(g)))
	for _, v := range volumes[:2] {
		list, err := b.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{SourceVolumeId: v.GetVolumeId(), Secrets: b.secrets})
		require.NoError(t, err)
		require.Len(t, list.GetEntries(), 1)
		assert.Equal(t, g.GetGroupSnapshotId(), list.GetEntries()[0].GetSnapshot().GetGroupSnapshotId())
	}

	// Requests for other volumes must not treat the group as interrupted, even though they do not
	// query all targets of the group.
	for _, of := range [][]*csi.Volume{{volumes[0]}, {volumes[0], volumes[2]}, {volumes[2]}} {
		_, err = b.groupSnapshot(t.Context(), "group-1", of...)
		if len(of) == 1 && of[0] == volumes[2] {
			require.NoError(t, err, "no target of this call contains the group")
			continue
		}
		drivertest.RequireCode(t, codes.AlreadyExists, driver.Status(err), "further targets")
	}
	all := b.secrets
	b.secrets = secretsFor("t0")
	_, err = b.groupSnapshot(t.Context(), "group-1", volumes[0])
	b.secrets = all
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(err), "rpcTokens")
	require.NoError(t, get(memberIDsOf(g)), "snapshots that may have other members elsewhere are not deleted")
	drivertest.RequireCode(t, codes.InvalidArgument, driver.Status(b.deleteGroup(t.Context(), g.GetGroupSnapshotId(), memberIDsOf(g)[:1])), "2 snapshots")
	drivertest.RequireCode(t, codes.NotFound, get(memberIDsOf(g)[:1]))
	require.NoError(t, get(memberIDsOf(g)), "nothing was deleted")

	for range 2 {
		require.NoError(t, b.deleteGroup(t.Context(), g.GetGroupSnapshotId(), memberIDsOf(g)))
	}
	for _, s := range sims[:2] {
		assert.Len(t, s.lvols(t), 1)
	}
	drivertest.RequireCode(t, codes.NotFound, get(memberIDsOf(g)))
}

func manyVolumes(n int) (list []*csi.Volume) {
	for range n {
		list = append(list, &csi.Volume{VolumeId: "t0:" + uuid.NewString()})
	}
	return list
}
