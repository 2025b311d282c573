package kubectl

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/request"
)

// withWitnesses installs the API of witnesses, with replicated volumes vol-0, vol-1 and so on in
// the namespace shop, and an object for each status. An empty status means that no object exists.
func (a *api) withWitnesses(statuses ...string) (ids []string) {
	a.change(func() {
		a.lists[witnessesPath] = nil
		for i, status := range statuses {
			uuid := fmt.Sprintf("5e2dcb9d-3a79-4362-965e-fdb0cd3f4b%02d", i)
			ids = append(ids, request.ReplicatedTarget+":"+uuid)
			made := request.Replicated{SizeBytes: 1, Replicas: []request.Replica{{Number: 0, Server: "storage-1", UUID: uuid}, {Number: 1, Server: "storage-2", UUID: uuid}}}
			attributes := fmt.Sprintf(`, "volumeAttributes": {%q: %q}`, request.KeyReplicated, made.Format())
			a.lists[volumesPath] = append(a.lists[volumesPath], pv(fmt.Sprint("pv-", i), "shop", fmt.Sprint("vol-", i), ids[i], attributes))
			if status != "" {
				a.lists[witnessesPath] = append(a.lists[witnessesPath], `{"metadata": {"name": "`+uuid+`"}, "spec": {"replicas": [{"number": 0, "server": "storage-1"}, {"number": 1, "server": "storage-2"}],
					"writer": {"node": "worker-3", "generation": 4}}`+status+`}`)
			}
		}
	})
	return ids
}

func status(inSync, discarded, held string, generation int) string {
	return fmt.Sprintf(`, "status": {"epoch": 7, "inSync": [%s], "discarded": [%s], "held": {"generation": %d, "replicas": [%s]}}`, inSync, discarded, generation, held)
}

// The states of replicas are those in the witnesses. A volume without a witness, and a witness
// without a volume, are shown as well.
func TestReplicatedVolumesAreListed(t *testing.T) {
	a := newAPI(t)
	a.withVolumes()
	none, err := a.ReplicatedVolumes(t.Context(), driver, Filter{})
	require.NoError(t, err)
	assert.Empty(t, none, "the API does not have witnesses")
	ids := a.withWitnesses(status("0, 1", "", "0, 1", 4), status("0", "", "0", 4), status("0", "1", "0, 1", 4), status("1", "0", "", 3), status("0", "", "0, 1", 3), " ", "")
	all, err := a.ReplicatedVolumes(t.Context(), driver, Filter{})
	require.NoError(t, err)
	require.Len(t, all, 7)
	assert.Equal(t, ReplicatedVolume{
		Namespace: "shop", Claim: "vol-2", Name: "pv-2", ID: ids[2], State: Degraded, Writer: "worker-3", Epoch: 7,
		Replicas: []Replica{{0, "storage-1", "current"}, {1, "storage-2", "rebuilding"}},
	}, all[2])
	var out bytes.Buffer
	require.NoError(t, PrintReplicatedVolumes(&out, Table, all))
	assert.Equal(t, []string{
		"NAMESPACE CLAIM VOLUME STATE CURRENT OTHERS NODE",
		"shop vol-0 pv-0 Complete storage-1,storage-2 - worker-3",
		"shop vol-1 pv-1 Degraded storage-1 storage-2(missing) worker-3",
		"shop vol-2 pv-2 Degraded storage-1 storage-2(rebuilding) worker-3",
		"shop vol-3 pv-3 Degraded storage-2 storage-1(discarded) worker-3",
		"shop vol-4 pv-4 Degraded storage-1 storage-2(missing) worker-3",
		"shop vol-5 pv-5 New storage-1,storage-2 - worker-3",
		"shop vol-6 pv-6 NoWitness - - -",
	}, lines(out.String()))

	some, err := a.ReplicatedVolumes(t.Context(), driver, Filter{Namespace: "shop", Names: []string{"vol-1"}})
	require.NoError(t, err)
	require.Len(t, some, 1)
	onServer, err := a.Volumes(t.Context(), driver, Filter{Target: "storage-2", Names: []string{"pv-1"}})
	require.NoError(t, err)
	require.Len(t, onServer, 1)
	assert.Equal(t, "storage-1,storage-2", onServer[0].Target)

	a.change(func() {
		a.lists[volumesPath] = nil
		a.lists[witnessesPath] = []string{strings.Replace(a.lists[witnessesPath][0], `"name"`, `"deletionTimestamp": "2026-01-01T00:00:00Z", "name"`, 1)}
	})
	left, err := a.ReplicatedVolumes(t.Context(), driver, Filter{})
	require.NoError(t, err)
	require.Len(t, left, 1)
	assert.Equal(t, Deleting, left[0].State)
	assert.Equal(t, ids[0], left[0].ID)
	for _, path := range []string{witnessesPath, groupsPath, volumesPath} {
		a.change(func() { a.fails = map[string]string{path: "forbidden"} })
		_, err = a.ReplicatedVolumes(t.Context(), driver, Filter{})
		require.ErrorContains(t, err, "forbidden", path)
	}
}

// lines returns the rows of a table, with one space between cells.
func lines(table string) (rows []string) {
	for row := range strings.Lines(table) {
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	return rows
}
