package doctor_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostname"
)

// hostOf returns the host of a node as the controller names it.
func hostOf(node string) export.Host {
	h := hostname.Of(node)
	return export.Host{NQN: h.NQN, Multipath: h.Multipath().NQN, IQN: h.IQN}
}

func kindsOf(found []doctor.Finding) (kinds []doctor.Kind) {
	for _, x := range found {
		kinds = append(kinds, x.Kind)
	}
	return kinds
}

// A volume that a move has locked may be exported to the host of that move, under each of the
// host's names. The host of the move that is making this volume, and the host of another node, are
// unexpected.
func TestMoveHostIsExpected(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			f := newFixture(t, tr)
			v := f.create(t, "pvc-1")
			known := &doctor.Known{Volumes: map[string]doctor.PV{"t0:" + v.UUID: {Name: "pv-1", Bytes: 8 * mib}}, Attached: map[string][]doctor.Attachment{}}
			e := with(f.examination(), known)
			e.Hosts = hostOf
			for node, want := range map[string][]doctor.Kind{
				hostname.MoveNode(v.UUID, uuid.NewString()): nil,
				hostname.MoveNode(uuid.NewString(), v.UUID): {doctor.WrongHost},
				"worker-1": {doctor.WrongHost},
			} {
				_, err := f.Export(t.Context(), v.UUID, hostOf(node))
				require.NoError(t, err)
				assert.Equal(t, want, kindsOf(run(t, e)), node)
				require.NoError(t, f.Unexport(t.Context(), v.UUID, nil))
			}
			known.Attached["t0:"+v.UUID] = []doctor.Attachment{{Node: "worker-1", Done: true}}
			_, err := f.Export(t.Context(), v.UUID, hostOf("worker-1"))
			require.NoError(t, err)
			assert.Empty(t, run(t, e))
		})
	}
}

// If some of several ids are refused, the orphans among them are still deleted.
func TestRefusedOrphansDoNotPreventOtherDeletions(t *testing.T) {
	f := newFixture(t, export.TCP)
	v := f.create(t, "pvc-1")
	e := with(f.examination(), (&cluster{}).known(t))
	found := run(t, e)
	require.Equal(t, []doctor.Kind{doctor.Orphan}, kindsOf(found))
	id := "t0:" + v.UUID
	err := doctor.DeleteOrphans(found, nil, []string{id})
	require.ErrorContains(t, err, id+" is not on a target that was read")
	assert.Empty(t, found[0].Repair)
	err = doctor.DeleteOrphans(found, e.Targets, []string{"t0:x", id, "t0:y"})
	require.ErrorContains(t, err, "t0:x")
	require.ErrorContains(t, err, "t0:y")
	require.NotContains(t, err.Error(), v.UUID)
	assert.NotEmpty(t, found[0].Repair)
	require.NoError(t, found[0].Apply(t.Context()))
	assert.Empty(t, run(t, e))
}

// Objects of other drivers, and attachments of unlisted volumes, are skipped. Objects after a
// skipped object are still read.
func TestForeignObjectsInTheListAreSkipped(t *testing.T) {
	id := "t0:" + uuid.NewString()
	var c cluster
	c.attach("unknown", "n0")
	c.pv("a", id, "1Gi", "Bound")
	c.attach("a", "n1")
	c.snapshot("t0:foreign")
	c.items[3]["spec"] = m{"driver": "ebs.csi.aws.com"}
	c.snapshot(id)
	c.items[4]["spec"] = m{"driver": "csi.spdk.io", "source": m{"snapshotHandle": "t0:given"}}
	known := c.known(t)
	assert.Equal(t, map[string][]doctor.Attachment{id: {{Node: "n1", Done: true}}}, known.Attached)
	assert.Equal(t, map[string]bool{id: true, "t0:given": true}, known.Snapshots)
	_, err := doctor.ParseKnown([]byte(`{"kind": "List", "items": [{"kind": "List", "items": [{"kind": "Pod"}, {"kind": "List"}]}, {"kind": "List"}]}`), "csi.spdk.io")
	require.ErrorContains(t, err, `"Pod"`)
}

// If the names of hosts are unknown, a fenced node is reported by the label of its mark.
func TestFencedNodeIsNamedByItsLabel(t *testing.T) {
	f := newFixture(t, export.TCP)
	_, err := f.Fence(t.Context(), drivertest.MultipathHost("worker-3"), "worker-3", false)
	require.NoError(t, err)
	e := f.examination()
	e.Hosts = nil
	found := run(t, e)
	require.Len(t, found, 1)
	assert.Contains(t, found[0].Object, "its name begins with worker-3")
	assert.Contains(t, found[0].Command, "--node NODE --yes")
	e.Hosts = drivertest.MultipathHost
	found = run(t, e)
	require.Len(t, found, 1)
	assert.Equal(t, "node worker-3", found[0].Object)
	assert.Contains(t, found[0].Command, "--node worker-3 --yes")
}
