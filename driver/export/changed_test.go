package export_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// node creates the iSCSI target of a volume as the service does, but with another bdev or without
// the node's initiator group.
func (f *fixture) node(t *testing.T, id, bdev string, maps ...spdkrpc.ISCSIPGIGMap) {
	t.Helper()
	require.NoError(t, f.rpc.ISCSICreateTargetNode(t.Context(), spdkrpc.ISCSICreateTargetNodeParams{
		Name: export.IQN(id), AliasName: id, LUNs: []spdkrpc.ISCSILUNParams{{BdevName: bdev, LUNID: new(int32(0))}}, PGIGMaps: maps, QueueDepth: 64, DisableCHAP: new(true),
	}))
}

func (f *fixture) target(t *testing.T, id string) spdkrpc.ISCSITargetNode {
	t.Helper()
	nodes, err := f.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	for _, n := range nodes {
		if n.Name == export.IQN(id) {
			return n
		}
	}
	require.Fail(t, "there is no iSCSI target", id)
	return spdkrpc.ISCSITargetNode{}
}

// An iSCSI target with a name in the driver's format may export something other than the volume.
func TestForeignISCSITargetIsNotChanged(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	require.NoError(t, admit(t.Context(), f.Service, f.bdev(t), drivertest.Host("n1"))) // creates both groups
	id, other := f.bdev(t), f.bdev(t)
	f.node(t, id, other, spdkrpc.ISCSIPGIGMap{PGTag: f.portalGroups(t)[0].Tag, IGTag: f.initiatorGroups(t)[0].Tag})
	before := f.target(t, id)
	require.ErrorIs(t, admit(t.Context(), f.Service, id, drivertest.Host("n1")), export.ErrForeign)
	assert.Equal(t, before, f.target(t, id))

	found, err := f.Inspect(t.Context())
	require.NoError(t, err)
	for _, e := range found.Exports {
		assert.Equal(t, e.Volume == id, e.Foreign == other, e.Volume)
		assert.Equal(t, []string{drivertest.Host("n1").IQN}, e.Hosts)
		assert.Empty(t, e.NotListening)
		assert.True(t, e.Complete)
	}
	// If another portal is configured, Inspect reports that no export is reachable there.
	elsewhere := f.listeningOn(export.Portal{Addr: "127.0.0.1", Port: "3261"})
	found, err = elsewhere.Inspect(t.Context())
	require.NoError(t, err)
	require.Len(t, found.Exports, 2)
	for _, e := range found.Exports {
		assert.Equal(t, []export.Portal{{Addr: "127.0.0.1", Port: "3261"}}, e.NotListening)
	}
}

// Inspect ignores iSCSI targets with names that do not match a volume.
func TestOtherISCSITargetsAreNotInspected(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	require.NoError(t, admit(t.Context(), f.Service, f.bdev(t), drivertest.Host("n1")))
	maps := []spdkrpc.ISCSIPGIGMap{{PGTag: f.portalGroups(t)[0].Tag, IGTag: f.initiatorGroups(t)[0].Tag}}
	require.NoError(t, f.rpc.ISCSICreateTargetNode(t.Context(), spdkrpc.ISCSICreateTargetNodeParams{
		Name: "iqn.2026-11.example:disk", AliasName: "disk", LUNs: []spdkrpc.ISCSILUNParams{{BdevName: f.bdev(t), LUNID: new(int32(0))}}, PGIGMaps: maps, QueueDepth: 64, DisableCHAP: new(true),
	}))
	found, err := f.Inspect(t.Context())
	require.NoError(t, err)
	assert.Len(t, found.Exports, 1)
}

// A call that cannot create its claim to the portal group returns ErrBusy only if another
// controller has a claim.
func TestUncertainPortalGroupClaimIsReadBack(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id, n1 := f.bdev(t), drivertest.Host("n1")
	lost := func(context.Context, any) error {
		return &spdkrpc.Error{Method: "iscsi_create_initiator_group", Kind: spdkrpc.OutcomeUnknown}
	}
	err := admit(t.Context(), f.through(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_initiator_group", Before: lost}), id, n1)
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	require.NotErrorIs(t, err, export.ErrBusy)
	assert.Empty(t, f.portalGroups(t))
	require.NoError(t, admit(t.Context(), f.Service, id, n1))
}

// Another controller has the claim when this call tries to create its own claim, and removes the
// claim before this call reads it.
func TestReleasedPortalGroupClaimIsIgnored(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	exists := func(context.Context, any) error {
		return &spdkrpc.Error{Method: "iscsi_create_initiator_group", Kind: spdkrpc.InvalidParams, Code: -32602}
	}
	require.NoError(t, admit(t.Context(), f.through(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_initiator_group", Before: exists}), f.bdev(t), drivertest.Host("n1")))
	assert.Len(t, f.portalGroups(t), 1)
}

// If another client changes an iSCSI target between the RPCs of an admission, the admission fails,
// and a retry repairs the target.
func TestConcurrentISCSITargetChangeFailsTheCall(t *testing.T) {
	n1 := drivertest.Host("n1")
	unmap := func(t *testing.T, f *fixture, id string) {
		require.NoError(t, f.rpc.ISCSITargetNodeRemovePGIGMaps(t.Context(), spdkrpc.ISCSITargetNodeRemovePGIGMapsParams{Name: export.IQN(id), PGIGMaps: f.target(t, id).PGIGMaps}))
	}
	remove := func(t *testing.T, f *fixture, id string) {
		require.NoError(t, f.rpc.ISCSIDeleteTargetNode(t.Context(), spdkrpc.ISCSIDeleteTargetNodeParams{Name: export.IQN(id)}))
	}
	for name, c := range map[string]struct {
		method string
		change func(t *testing.T, f *fixture, id string)
	}{
		"it is deleted":                       {"iscsi_target_node_add_pg_ig_maps", remove},
		"the node's group is removed from it": {"iscsi_target_node_add_pg_ig_maps", unmap},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, export.ISCSI, "")
			id := f.bdev(t)
			require.NoError(t, admit(t.Context(), f.Service, f.bdev(t), n1)) // creates the portal group and the initiator group
			f.node(t, id, id, spdkrpc.ISCSIPGIGMap{PGTag: f.portalGroups(t)[0].Tag, IGTag: f.initiatorGroups(t)[0].Tag})
			unmap(t, f, id)
			found, err := f.Inspect(t.Context())
			require.NoError(t, err)
			for _, e := range found.Exports {
				assert.Equal(t, e.Volume != id, e.Complete, "an export without any host's group is incomplete")
			}
			s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: c.method, After: func(context.Context) { c.change(t, f, id) }})
			require.ErrorIs(t, admit(t.Context(), s, id, n1), export.ErrBusy)
			require.NoError(t, admit(t.Context(), f.Service, id, n1))
			assert.Len(t, f.target(t, id).PGIGMaps, 1)
			assert.Len(t, f.target(t, id).LUNs, 1)
		})
	}
}

// An initiator group belongs to one node, but its tag may be reassigned to another node during an
// admission.
func TestReassignedInitiatorGroupIsNotUsed(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id, n1 := f.bdev(t), drivertest.Host("n1")
	s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_target_node", After: func(ctx context.Context) {
		for _, g := range f.initiatorGroups(t) {
			require.NoError(t, f.rpc.ISCSIInitiatorGroupRemoveInitiators(ctx, spdkrpc.ISCSIInitiatorGroupRemoveInitiatorsParams{Tag: g.Tag, Initiators: g.Initiators}))
			require.NoError(t, f.rpc.ISCSIInitiatorGroupAddInitiators(ctx, spdkrpc.ISCSIInitiatorGroupAddInitiatorsParams{Tag: g.Tag, Initiators: []string{drivertest.Host("n2").IQN}}))
		}
	}})
	err := admit(t.Context(), s, id, n1)
	require.ErrorIs(t, err, export.ErrBusy)
	require.ErrorContains(t, err, "changed during the call")
}

// If the bdev of a volume disappears temporarily, for example because of a hot removal, the next
// publication adds the bdev again.
func TestMissingLUNIsAddedAgain(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id, n1 := f.bdev(t), drivertest.Host("n1")
	require.NoError(t, admit(t.Context(), f.Service, id, n1))
	require.NoError(t, f.rpc.BdevMallocDelete(t.Context(), spdkrpc.BdevMallocDeleteParams{Name: id}))
	require.Empty(t, f.target(t, id).LUNs)
	found, err := f.Inspect(t.Context())
	require.NoError(t, err)
	assert.False(t, found.Exports[0].Complete)
	_, err = f.rpc.BdevMallocCreate(t.Context(), spdkrpc.BdevMallocCreateParams{Name: &id, UUID: &id, NumBlocks: 1024, BlockSize: 4096})
	require.NoError(t, err)
	require.NoError(t, admit(t.Context(), f.Service, id, n1))
	luns := f.target(t, id).LUNs
	require.Len(t, luns, 1)
	assert.Equal(t, id, luns[0].BdevName)
}

// If a subsystem is created between two reads, the call reports that the volume is busy instead of
// returning an SPDK error.
func TestConcurrentlyCreatedSubsystemIsReportedAsBusy(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	id := f.bdev(t)
	require.NoError(t, admit(t.Context(), f.Service, id, drivertest.Host("n1")))
	for _, kind := range []error{spdkrpc.InvalidParams, spdkrpc.NoSuchDevice} {
		s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "nvmf_subsystem_get_controllers", Before: func(context.Context, any) error { return kind }})
		require.ErrorIs(t, s.CheckHoldsIO(t.Context(), id), export.ErrBusy)
	}
	s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "nvmf_subsystem_get_controllers", Before: func(context.Context, any) error { return spdkrpc.Unreachable }})
	err := s.CheckHoldsIO(t.Context(), id)
	require.ErrorIs(t, err, spdkrpc.Unreachable)
	require.NotErrorIs(t, err, export.ErrBusy)
	require.NoError(t, f.CheckHoldsIO(t.Context(), uuid.NewString()), "it is not exported")
}

// RemoveUnusedGroup keeps a group if its tag was reassigned to another node after the call of
// Inspect.
func TestOnlyTheInspectedGroupIsRemoved(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	n1, n2, stranger := drivertest.Host("n1").IQN, drivertest.Host("n2").IQN, "iqn.2016-06.example:others"
	for tag, initiator := range map[int32]string{999: n1, 2000: n1, 2001: n2, 2002: stranger} {
		require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: tag, Initiators: []string{initiator}, Netmasks: []string{"ANY"}}))
	}
	for _, c := range []struct {
		remove export.Group
		left   []int32
	}{
		{export.Group{Tag: 2000, Initiator: n2}, []int32{999, 2000, 2001, 2002}},
		{export.Group{Tag: 2002, Initiator: stranger}, []int32{999, 2000, 2001, 2002}},
		{export.Group{Tag: 999, Initiator: n1}, []int32{999, 2000, 2001, 2002}},
		{export.Group{Tag: 2000, Initiator: n1}, []int32{999, 2001, 2002}},
	} {
		require.NoError(t, f.RemoveUnusedGroup(t.Context(), c.remove))
		var left []int32
		for _, g := range f.initiatorGroups(t) {
			left = append(left, g.Tag)
		}
		assert.ElementsMatch(t, c.left, left, c.remove)
	}
}
