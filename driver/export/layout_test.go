package export_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A replica is the only namespace of its own subsystem, which has no ANA reporting and admits only
// the given host.
func TestReplicaExportHasItsOwnSubsystem(t *testing.T) {
	f, h := newFixture(t, export.TCP, ""), drivertest.MultipathHost("n1")
	f.malloc(t, volumeV)
	require.NoError(t, f.AdmitReplica(t.Context(), volumeV, 7, h, mayExport))
	nqn := "nqn.2020-04.io.spdk.csi:replica:" + volumeV + ":7"
	assert.Equal(t, nqn, export.ReplicaNQN(volumeV, 7))
	subs, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{NQN: &nqn})
	require.NoError(t, err)
	require.Len(t, subs, 1)
	s := subs[0]
	assert.False(t, s.AllowAnyHost)
	assert.Equal(t, volumeV, *s.ModelNumber)
	assert.EqualValues(t, 1, *s.MaxNamespaces)
	assert.Equal(t, strings.ReplaceAll(volumeV, "-", "")[:20], *s.SerialNumber)
	require.Len(t, s.Namespaces, 1)
	ns := s.Namespaces[0]
	assert.EqualValues(t, 1, ns.NSID)
	assert.Equal(t, volumeV, ns.BdevName)
	assert.True(t, strings.EqualFold(volumeV, *ns.UUID))
	assert.True(t, strings.EqualFold(strings.ReplaceAll(volumeV, "-", ""), *ns.NGUID))
	require.Len(t, s.Hosts, 1, "the node holds back I/O in its mirror, so it does not connect under its second name")
	assert.Equal(t, h.NQN, s.Hosts[0].NQN)
	require.Len(t, s.ListenAddresses, 1)
	assert.Equal(t, "4420", s.ListenAddresses[0].Trsvcid)
	require.ErrorIs(t, f.AdmitReplica(t.Context(), volumeV, 7, withKeys(t, h, oneKey, ""), mayExport), export.ErrNoAuthentication)
}

// Tags of other initiator groups and portal groups are not used.
func TestOccupiedTagsAreSkipped(t *testing.T) {
	f, h := newFixture(t, export.ISCSI, ""), drivertest.Host("n1")
	f.malloc(t, volumeV)
	require.NoError(t, admit(t.Context(), f.Service, volumeV, h))
	groups := f.initiatorGroups(t)
	require.Len(t, groups, 1)
	tag := groups[0].Tag
	assert.GreaterOrEqual(t, tag, int32(1000))
	require.NoError(t, f.Withdraw(t.Context(), volumeV, nil))
	require.Empty(t, f.initiatorGroups(t))
	for i, other := range []string{"iqn.2026-11.x:a", "iqn.2026-11.x:b"} {
		require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: tag + int32(i), Initiators: []string{other}, Netmasks: []string{"ANY"}}))
	}
	require.NoError(t, admit(t.Context(), f.Service, volumeV, h))
	node := f.targetNode(t, volumeV)
	assert.Equal(t, []spdkrpc.ISCSIPGIGMap{{PGTag: 1, IGTag: tag + 2}}, node.PGIGMaps)

	more := f.listeningOn(export.Portal{Addr: "127.0.0.1", Port: "3260"}, export.Portal{Addr: "127.0.0.2", Port: "3260"}, export.Portal{Addr: "127.0.0.3", Port: "3260"})
	require.NoError(t, admit(t.Context(), more, volumeV, h))
	var tags []int32
	for _, g := range f.portalGroups(t) {
		tags = append(tags, g.Tag)
	}
	assert.ElementsMatch(t, []int32{1, 2, 3}, tags)
}

// The label of a fenced node has at most 40 characters. Unprintable characters are replaced.
func TestLabelsOfFencedNodesArePrintable(t *testing.T) {
	for node, want := range map[string]string{
		"a ~b": "a ~b", "a\x1f\x7fé": "a???", strings.Repeat("x", 40): strings.Repeat("x", 40), strings.Repeat("x", 41): strings.Repeat("x", 40),
	} {
		f := newFixture(t, export.TCP, "")
		_, err := f.Fence(t.Context(), drivertest.Host("n1"), node, false)
		require.NoError(t, err)
		all, err := f.Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, all.Fenced, 1)
		assert.Equal(t, want, all.Fenced[0].Label)
		assert.False(t, all.Fenced[0].Since.IsZero())
	}
}

// The driver uses an administrator's initiator group for a node, but never deletes it. It does not
// use a group that has further members, or limits their addresses.
func TestInitiatorGroupsOfAdministratorsAreKept(t *testing.T) {
	for _, tag := range []int32{1, 7} {
		f, h := newFixture(t, export.ISCSI, ""), drivertest.Host("n1")
		f.malloc(t, volumeV)
		for other, g := range map[int32]spdkrpc.ISCSIInitiatorGroup{
			tag:  {Initiators: []string{h.IQN}, Netmasks: []string{"ANY"}},
			2000: {Initiators: []string{h.IQN, "iqn.2026-11.x:a"}, Netmasks: []string{"ANY"}},
			2001: {Initiators: []string{h.IQN}, Netmasks: []string{"192.0.2.0/24"}},
		} {
			require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: other, Initiators: g.Initiators, Netmasks: g.Netmasks}))
		}
		before := f.initiatorGroups(t)
		require.NoError(t, admit(t.Context(), f.Service, volumeV, h))
		assert.Equal(t, []spdkrpc.ISCSIPGIGMap{{PGTag: 1, IGTag: tag}}, f.targetNode(t, volumeV).PGIGMaps)
		require.NoError(t, f.Withdraw(t.Context(), volumeV, &h))
		there, err := f.Exists(t.Context(), volumeV)
		require.NoError(t, err)
		assert.False(t, there)
		assert.ElementsMatch(t, before, f.initiatorGroups(t))
	}
}

// An export over NVMe-oF is complete if it has its namespace and listens on at least one portal.
func TestIncompleteSubsystemsAreInspected(t *testing.T) {
	f, h := newFixture(t, export.TCP, ""), drivertest.Host("n1")
	f.malloc(t, volumeV)
	require.NoError(t, admit(t.Context(), f.Service, volumeV, h))
	up, down := f.Listen[0], export.Portal{Addr: "127.0.0.1", Port: "4421"}
	inspected := func(s *export.Service) export.Found {
		all, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, all.Exports, 1)
		return all.Exports[0]
	}
	want := export.Found{Volume: volumeV, Name: export.NQN(volumeV), Hosts: []string{h.NQN}, Complete: true}
	assert.Equal(t, want, inspected(f.Service))
	want.NotListening = []export.Portal{down}
	assert.Equal(t, want, inspected(f.listeningOn(up, down)))
	want.Complete = false
	assert.Equal(t, want, inspected(f.listeningOn(down)))
	require.NoError(t, f.rpc.NVMfSubsystemRemoveNS(t.Context(), spdkrpc.NVMfSubsystemRemoveNSParams{NQN: export.NQN(volumeV), NSID: 1}))
	assert.Equal(t, want, inspected(f.listeningOn(down)))
	want.NotListening = nil
	assert.Equal(t, want, inspected(f.Service))
	f.malloc(t, volumeW)
	_, err := f.rpc.NVMfSubsystemAddNS(t.Context(), spdkrpc.NVMfSubsystemAddNSParams{NQN: export.NQN(volumeV), Namespace: spdkrpc.NVMfNamespaceParams{BdevName: volumeW}})
	require.NoError(t, err)
	want.Complete, want.Foreign = true, volumeW
	assert.Equal(t, want, inspected(f.Service))
}

// Later versions must recognize the exports of earlier versions. The maximum number of namespaces
// marks an export for several nodes.
func TestMarkOfSharedExportsNeverChanges(t *testing.T) {
	f, h := newFixture(t, export.TCP, ""), drivertest.MultipathHost("n1")
	for _, id := range []string{volumeV, volumeW} {
		f.malloc(t, id)
	}
	require.NoError(t, admit(t.Context(), f.Service, volumeV, h))
	_, err := f.Share(t.Context(), volumeW, h, mayExport)
	require.NoError(t, err)
	assert.EqualValues(t, 1, *f.subsystem(t, volumeV).MaxNamespaces)
	assert.EqualValues(t, 2, *f.subsystem(t, volumeW).MaxNamespaces)
}
