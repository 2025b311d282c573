package kubectl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	usedID   = "storage-1:44444444-4444-4444-8444-444444444444"
	lostID   = "storage-1:55555555-5555-4555-8555-555555555555"
	freeID   = "storage-1:66666666-6666-4666-8666-666666666666"
	orphanID = "storage-1:77777777-7777-4777-8777-777777777777"
)

// newEvacuation returns a cluster with volumes on storage-1: data is unused; used has a pod; lost
// cannot be copied; free has no claim; one has no PersistentVolume; one is a snapshot.
func newEvacuation(t *testing.T) (*moveCluster, Evacuation) {
	c := newMoveCluster(t)
	for claim, id := range map[string]string{"used": usedID, "lost": lostID} {
		c.put("/api/v1/namespaces/lab/persistentvolumeclaims/"+claim, strings.ReplaceAll(`{"metadata": {"name": "CLAIM", "namespace": "lab", "uid": "u-CLAIM"}, "spec": {"volumeName": "pv-CLAIM"}, "status": {"phase": "Bound"}}`, "CLAIM", claim))
		c.put(volumesPath+"/pv-"+claim, pv("pv-"+claim, "lab", claim, id, ""))
		c.objects[volumesPath+"/pv-"+claim].set("u-"+claim, "spec", "claimRef", "uid")
	}
	c.put(podsPath("lab")+"/db-0", `{"metadata": {"name": "db-0", "namespace": "lab"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]}}`)
	c.put(volumesPath+"/pv-free", strings.Replace(pv("pv-free", "lab", "gone", freeID, ""), "Bound", "Released", 1))
	c.put(volumesPath+"/pv-elsewhere", pv("pv-elsewhere", "lab", "elsewhere", idB, ""))
	c.put(groupsPath, `{"metadata": {}, "groups": [{"name": "`+snapshotGroup+`"}]}`)
	c.put(contentsPath+"/s", `{"metadata": {"name": "s"}, "spec": {"driver": "csi.spdk.io", "volumeSnapshotRef": {"namespace": "lab", "name": "snap"}}, "status": {"snapshotHandle": "`+snapA+`", "restoreSize": 1048576}}`)
	c.others = []any{map[string]any{"id": orphanID, "name": "pvc-x"}, map[string]any{"id": usedID}}
	return c, Evacuation{Move: c.move(), Server: "storage-1"}
}

func TestEvacuationMovesUnusedVolumes(t *testing.T) {
	c, e := newEvacuation(t)
	plan, err := e.Plan(t.Context())
	require.NoError(t, err)
	assert.Empty(t, c.log, "nothing is changed")
	var table strings.Builder
	require.NoError(t, PrintEvacuees(&table, Table, plan))
	var rows []string
	for row := range strings.Lines(table.String()) {
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	assert.Equal(t, []string{
		"NAMESPACE NAME KIND SIZE USED-BY PLAN",
		"lab lost claim 1Gi - moved now",
		"lab used claim 1Gi pod db-0 in use: stop pod db-0, or add --prepare",
		"shop data claim 1Gi - moved now",
		"lab snap snapshot 1Mi - snapshots are not moved",
		"- pvc-x volume 0 - no PersistentVolume of this cluster: see kubectl spdkgate doctor and kubectl spdkgate replicas",
		"lab gone volume 1Gi - no claim uses it: it is not moved",
	}, rows)

	require.ErrorIs(t, e.Run(t.Context(), plan), ErrUnfinished)
	c.requireMoved(t, 1)
	assert.Contains(t, e.Out.(*strings.Builder).String(), "1 moved, 0 prepared, 1 failed, 1 in use; moved before: 0; not to be moved: 3\n")
	assert.Contains(t, e.Out.(*strings.Builder).String(), "claim lab/lost was not moved: ")
	assert.NotNil(t, c.objects[contentsPath+"/s"])

	// When the pod is stopped and the failure is repaired, the command is repeated.
	delete(c.objects, podsPath("lab")+"/db-0")
	delete(c.objects, volumesPath+"/pv-lost")
	c.put(attachmentsPath+"/1", attachment("1", "pv-used", "worker-1", true))
	plan, err = e.Plan(t.Context())
	require.NoError(t, err)
	notes := map[string]string{}
	for _, at := range plan {
		notes[at.Name] = at.Note
	}
	assert.Equal(t, "moved: when its pods have their data, run `kubectl spdkgate move data --namespace=shop --delete-original`", notes["data"])
	assert.Equal(t, "in use: wait until it is detached from node worker-1, or add --prepare", notes["used"])
	before := len(c.log)
	e.Prepare = true
	plan, err = e.Plan(t.Context())
	require.NoError(t, err)
	c.storage[usedID] = &simVolume{data: 5}
	require.ErrorIs(t, e.Run(t.Context(), plan), ErrUnfinished, "it is only prepared")
	assert.Contains(t, e.Out.(*strings.Builder).String(), "0 moved, 1 prepared, 0 failed, 0 in use; moved before: 1; not to be moved: 3\n")
	assert.Len(t, c.log[before:], 2, "a record and a Job")
}

// An evacuation that is interrupted at each of its changes is repeated.
func TestInterruptedEvacuationIsContinued(t *testing.T) {
	for at := 1; at <= changes; at++ {
		c := newMoveCluster(t)
		e := Evacuation{Move: c.move(), Server: "storage-1"}
		plan, err := e.Plan(t.Context())
		require.NoError(t, err)
		c.interrupt(at, interruption{executed: at%2 == 0, kills: true})
		_ = e.Run(t.Context(), plan)
		c.interrupt(0, interruption{})
		c.requireNothingLost()
		plan, err = e.Plan(t.Context())
		require.NoError(t, err)
		require.NoError(t, e.Run(t.Context(), plan), "at %d", at)
		c.requireMoved(t, 1)
		plan, err = e.Plan(t.Context())
		require.NoError(t, err)
		require.Len(t, plan, 1)
		assert.Equal(t, PlanMoved, plan[0].Plan)
	}
	c := newMoveCluster(t)
	m := c.move()
	c.interrupt(4, interruption{kills: true})
	require.ErrorIs(t, m.Run(t.Context()), errInterrupted)
	c.interrupt(2, interruption{kills: true})
	require.ErrorIs(t, m.KeepOriginal(t.Context()), errInterrupted)
	c.interrupt(0, interruption{})
	e := Evacuation{Move: m, Server: "storage-1"}
	plan, err := e.Plan(t.Context())
	require.NoError(t, err)
	assert.Equal(t, PlanGiveUp, plan[0].Plan)
	require.ErrorIs(t, e.Run(t.Context(), plan), ErrUnfinished)
}

func TestEvacuationNeedsAnotherServer(t *testing.T) {
	c := newMoveCluster(t)
	for _, parameters := range []map[string]string{nil, {"lvstore": "lvs0"}, {"target": "storage-1"}, {"target": "storage-2, storage-1"}} {
		e := Evacuation{Move: c.move(), Server: "storage-1"}
		e.Parameters = parameters
		_, err := e.Plan(t.Context())
		require.ErrorIs(t, err, ErrNotMovable, "%v", parameters)
	}
	e := Evacuation{Move: c.move(), Server: "storage-1"}
	c.down = true
	_, err := e.Plan(t.Context())
	require.ErrorContains(t, err, "down", "what is on the storage server is unknown")
}
