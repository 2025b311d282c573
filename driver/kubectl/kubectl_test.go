package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/hostname"
	"github.com/spdkgate/spdkgate/driver/inventory"
)

const driver = "csi.spdk.io"

func claims(volumes []Volume) (names []string) {
	for _, v := range volumes {
		names = append(names, v.Namespace+"/"+v.Claim)
	}
	return names
}

func TestVolumesAreListed(t *testing.T) {
	a := newAPI(t)
	a.withVolumes()
	all, err := a.Volumes(t.Context(), driver, Filter{})
	require.NoError(t, err)
	assert.Equal(t, []string{"lab/hand", "shop/data", "shop/db"}, claims(all))
	assert.Equal(t, Volume{
		Namespace: "shop", Claim: "data", Name: "pv-a", ID: idA, Target: "storage-1", Store: "lvs0", Transport: "TCP", Size: "1Gi", Class: "fast",
		Mode: "Filesystem", AccessModes: []string{"ReadWriteOnce"}, Status: "Bound", Nodes: []Attachment{{"worker-1", "attached"}},
	}, all[1])
	assert.Empty(t, all[0].Target, "its id does not name it")
	for want, f := range map[string]Filter{
		"shop/data shop/db": {Namespace: "shop"}, "shop/db": {Target: "storage-2"}, "shop/data": {Node: "worker-1"}, "shop/data  ": {Namespace: "shop", Names: []string{"data", "hand"}},
		"lab/hand": {Names: []string{"pv-c"}}, "": {Class: "slow"}, "shop/data shop/db ": {Store: "lvs0"},
	} {
		some, err := a.Volumes(t.Context(), driver, f)
		require.NoError(t, err)
		assert.Equal(t, strings.TrimSpace(want), strings.Join(claims(some), " "), f)
	}
	a.change(func() {
		a.lists[attachmentsPath][0] = strings.Replace(a.lists[attachmentsPath][0], `"name": "1"`, `"name": "1", "deletionTimestamp": "2026-01-01T00:00:00Z"`, 1)
	})
	a.change(func() {
		a.lists[volumesPath][0] = strings.Replace(a.lists[volumesPath][0], `"name": "pv-b"`, `"name": "pv-b", "deletionTimestamp": "2026-01-01T00:00:00Z"`, 1)
	})
	all, err = a.Volumes(t.Context(), driver, Filter{Namespace: "shop"})
	require.NoError(t, err)
	assert.Equal(t, "detaching", all[0].Nodes[0].State)
	assert.Equal(t, "Terminating", all[1].Status)

	a.change(func() { a.fails[attachmentsPath] = "Error from server (Forbidden): no" })
	_, err = a.Volumes(t.Context(), driver, Filter{})
	require.ErrorContains(t, err, "kubectl get --raw "+attachmentsPath+"?limit=2000: Error from server (Forbidden): no")
	none := a.Client
	none.Program = "/nonexistent/kubectl"
	_, err = none.Volumes(t.Context(), driver, Filter{})
	require.ErrorContains(t, err, "no such file")
}

// live returns the report of storage-1 about pv-a. storage-2 is down.
func live() inventory.Inventory {
	h := hostname.Of("worker-1")
	return inventory.Inventory{Targets: []inventory.Target{
		{
			Name: "storage-1", Transport: "TCP", Topology: map[string]string{"zone": "a", "rack": "7"},
			Stores: []inventory.Store{{Name: "lvs0", TotalBytes: 100 << 30, FreeBytes: 50 << 30, PromisedBytes: 3 << 29, LargestBytes: 98 << 30, LongestChain: 2}, {Name: "lvs1"}},
			Volumes: []inventory.Volume{
				{
					ID: idA, Name: "pvc-a", Store: "lvs0", SizeBytes: 1 << 30, Thin: true, AllocatedBytes: new(int64(512 << 20)), Conditions: []string{"LvstoreFull: delete volumes"},
					Export: &inventory.Export{
						Name: "nqn", Hosts: []string{h.NQN, "nqn.other", h.Multipath().NQN}, Connected: []string{h.Multipath().NQN, h.Multipath().NQN},
						Paths: []inventory.Path{{Address: "192.0.2.1:4420", Listening: true}, {Address: "198.51.100.1:4420"}},
					},
				},
				{ID: "storage-1:" + idC, Name: "hand", Store: "lvs0", Export: &inventory.Export{Open: true}},
			},
		},
		{Name: "storage-2", Transport: "TCP", Error: "connection refused"},
	}}
}

func (a *api) withInventory(t *testing.T) {
	text, err := json.Marshal(live())
	require.NoError(t, err)
	a.change(func() {
		a.run = func(string) (out, notes string, code int) { return string(text), "spdk-csi: connection refused", 1 }
	})
}

func TestLiveFiguresAreShown(t *testing.T) {
	a := newAPI(t)
	a.withVolumes()
	a.withInventory(t)
	nodes, err := a.Nodes(t.Context(), driver)
	require.NoError(t, err)
	assert.Equal(t, []string{"worker-1", "worker-2"}, nodes)
	all, err := a.Volumes(t.Context(), driver, Filter{})
	require.NoError(t, err)
	from, err := a.Inventory(t.Context(), "storage-1", "storage-2")
	require.NoError(t, err, "targets that respond are shown")
	assert.Equal(t, []string{"--namespace=spdkcsi", "--context=test", "deployment/spdkcsi-controller", "--container=spdkcsi-controller", "--", "spdk-csi", "inventory", "--target=storage-1", "--target=storage-2"}, a.command(0))
	require.EqualError(t, Unread(from), "storage server storage-2 is not shown: connection refused")
	AddLive(all, from, nodes)

	var out bytes.Buffer
	require.NoError(t, PrintVolumes(&out, Table, true, all))
	assert.Equal(t, `NAMESPACE   CLAIM   VOLUME   TARGET      LVSTORE   SIZE   STATUS   NODES                 ALLOCATED   EXPORTED-TO          CONNECTED     PATHS                         CONDITION
lab         hand    pv-c     -           -         1Gi    Bound    -                     -           every host           -             0/0                           -
shop        data    pv-a     storage-1   lvs0      1Gi    Bound    worker-1              512Mi       nqn.other,worker-1   worker-1(2)   1/2 (not 198.51.100.1:4420)   LvstoreFull: delete volumes
shop        db      pv-b     storage-2   lvs0      1Gi    Bound    worker-2(attaching)   ?           ?                    ?             ?                             ?
`, out.String())
	out.Reset()
	require.NoError(t, PrintVolumes(&out, JSON, true, all[1:2]))
	got := decoded(t, out.String())["items"].([]any)[0].(map[string]any)
	assert.Equal(t, idA, got["id"])
	assert.Equal(t, []any{"worker-1", "worker-1"}, got["live"].(map[string]any)["connected"])
	assert.EqualValues(t, 512<<20, got["live"].(map[string]any)["allocatedBytes"])

	stores := Stores(from)
	out.Reset()
	require.NoError(t, PrintStores(&out, Wide, stores))
	assert.Equal(t, `TARGET      LVSTORE   SIZE    FREE   PROVISIONED   LARGEST   VOLUMES   CHAIN   TOPOLOGY
storage-1   lvs0      100Gi   50Gi   1.5Gi         98Gi      2         2       rack=7,zone=a
storage-1   lvs1      0       0      0             0         0         0       rack=7,zone=a
`, out.String())

	for _, printed := range []string{"", "{}", "not JSON"} {
		a.change(func() {
			a.run = func(string) (out, notes string, code int) { return printed, `unknown command "inventory"`, 1 }
		})
		_, err = a.Inventory(t.Context())
		require.EqualError(t, err, `run spdk-csi inventory in deployment/spdkcsi-controller of namespace spdkcsi: unknown command "inventory"`)
	}
	a.change(func() { a.run = func(string) (out, notes string, code int) { return "", "", 0 } })
	_, err = a.Inventory(t.Context())
	require.ErrorContains(t, err, "the command printed no inventory")
}

func TestSnapshotsAreListed(t *testing.T) {
	a := newAPI(t)
	a.withVolumes()
	none, err := a.Snapshots(t.Context(), driver, "")
	require.NoError(t, err, "a cluster without the API of snapshots has none")
	assert.Empty(t, none)
	content := func(name, driver, meta, source, status string) string {
		return `{"metadata": {"name": "` + name + `"` + meta + `}, "spec": {"driver": "` + driver + `", "deletionPolicy": "Delete", "volumeSnapshotClassName": "snap", "source": {` + source + `},
			"volumeSnapshotRef": {"namespace": "shop", "name": "of-` + name + `"}}, "status": {` + status + `}}`
	}
	a.withSnapshots(
		content("d", driver, `, "deletionTimestamp": "2026-01-01T00:00:00Z"`, `"snapshotHandle": "`+snapB+`"`, ``),
		content("a", driver, "", `"volumeHandle": "`+idA+`"`, `"snapshotHandle": "`+snapA+`", "creationTime": 1700000000000000000, "restoreSize": 1073741824, "readyToUse": true, "volumeGroupSnapshotHandle": "g1"`),
		content("c", driver, "", `"volumeHandle": "storage-1:44444444-4444-4444-8444-444444444444"`, `"error": {"message": "no\nspace"}`),
		content("x", "ebs.csi.aws.com", "", "", ""), content("b", driver, "", `"volumeHandle": "`+idB+`"`, ``),
	)
	all, err := a.Snapshots(t.Context(), driver, "")
	require.NoError(t, err)
	created := time.Unix(1700000000, 0).UTC()
	require.Len(t, all, 4)
	assert.Equal(t, Snapshot{
		Namespace: "shop", Name: "of-a", Content: "a", ID: snapA, Target: "storage-1", Source: "data", SizeBytes: 1 << 30, Status: "Ready", Created: &created,
		Class: "snap", Policy: "Delete", Group: "g1",
	}, all[0])
	var out bytes.Buffer
	require.NoError(t, PrintSnapshots(&out, Table, created.Add(3*time.Hour), all))
	assert.Equal(t, `NAMESPACE   SNAPSHOT   SOURCE                                           TARGET      SIZE   STATUS        AGE
shop        of-a       data                                             storage-1   1Gi    Ready         3h
shop        of-b       db                                               -           0      Pending       -
shop        of-c       storage-1:44444444-4444-4444-8444-444444444444   -           0      Failed        -
shop        of-d       -                                                storage-1   0      Terminating   -
`, out.String())
	out.Reset()
	require.NoError(t, PrintSnapshots(&out, Wide, created, all))
	assert.Contains(t, out.String(), "no space\n", "a cell is one line")
	// For a snapshot that Kubernetes is deleting, the command shows the storage server's reason why
	// the snapshot still exists.
	assert.Equal(t, []string{snapB}, Terminating(all))
	a.change(func() {
		a.run = func(string) (out, notes string, code int) {
			return `{"targets": [{"name": "storage-1", "snapshots": [{"id": "` + snapB + `", "undeletable": "PersistentVolume pvc-1"}]}]}`, "", 0
		}
	})
	from, err := a.InventoryOfSnapshots(t.Context(), Terminating(all))
	require.NoError(t, err)
	assert.Equal(t, []string{"spdk-csi", "inventory", "--snapshot=" + snapB}, a.command(0)[5:])
	AddUndeletable(all, from)
	out.Reset()
	require.NoError(t, PrintSnapshots(&out, Wide, created, all))
	assert.Regexp(t, `of-d .* PersistentVolume pvc-1
$`, out.String())
	some, err := a.Snapshots(t.Context(), driver, "lab")
	require.NoError(t, err)
	assert.Empty(t, some)
	a.change(func() { a.fails[groupsPath] = "Unable to connect to the server" })
	_, err = a.Snapshots(t.Context(), driver, "")
	require.ErrorContains(t, err, "Unable to connect")
}

func TestCapacityIsShown(t *testing.T) {
	a := newAPI(t)
	none, err := a.Capacities(t.Context(), driver)
	require.NoError(t, err)
	assert.Empty(t, none)
	assert.Equal(t, "csi.storage.k8s.io/drivername=csi.spdk.io", a.query(capacitiesPath).Get("labelSelector"))
	a.change(func() {
		a.lists[capacitiesPath] = []string{
			`{"storageClassName": "fast", "nodeTopology": {"matchLabels": {"zone": "b", "rack": "1"}}, "capacity": "10Gi", "maximumVolumeSize": "5Gi"}`,
			`{"storageClassName": "fast", "nodeTopology": {}}`,
		}
	})
	all, err := a.Capacities(t.Context(), driver)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, PrintCapacities(&out, Table, all))
	assert.Equal(t, "TOPOLOGY        CLASS   CAPACITY   LARGEST\n-               fast    0          -\nrack=1,zone=b   fast    10Gi       5Gi\n", out.String())
	out.Reset()
	require.NoError(t, PrintCapacities(&out, YAML, all[1:]))
	assert.Equal(t, "items:\n  - capacity: 10Gi\n    class: fast\n    largestVolume: 5Gi\n    topology: rack=1,zone=b\n", out.String())
	out.Reset()
	require.NoError(t, PrintCapacities(&out, JSON, nil))
	assert.JSONEq(t, `{"items": []}`, out.String())
}

// The plugin passes the list of volumes to doctor in the format that doctor expects.
func TestDoctorReceivesTheListOfVolumes(t *testing.T) {
	a := newAPI(t)
	a.withVolumes()
	a.withSnapshots(`{"spec": {"driver": "csi.spdk.io", "source": {"volumeHandle": "` + idA + `"}}, "status": {"snapshotHandle": "` + snapA + `"}}`)
	a.change(func() { a.run = func(string) (out, notes string, code int) { return "a finding\n", "a note", 1 } })
	var out, notes bytes.Buffer
	const another = "storage-1:55555555-5555-4555-8555-555555555555"
	err := a.Doctor(t.Context(), 0, []byte(`{"kind": "List", "items": [{"kind": "PersistentVolume", "metadata": {"name": "pv-5"}, "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": "`+another+`"}}}]}`), &out, &notes, "--fix")
	require.Equal(t, Status(1), err)
	assert.Equal(t, "a finding\n", out.String())
	assert.Equal(t, "a note", notes.String())
	assert.Equal(t, []string{"--namespace=spdkcsi", "--stdin", "--context=test", "deployment/spdkcsi-controller", "--container=spdkcsi-controller", "--", "spdk-csi", "doctor", "--volumes=-", "--fix"}, a.command(0))
	known, err := doctor.ParseKnown([]byte(a.input()), driver)
	require.NoError(t, err)
	assert.Len(t, known.Volumes, 4)
	assert.Contains(t, known.Volumes, another)
	assert.Equal(t, "pv-a", known.Volumes[idA].Name)
	assert.Equal(t, map[string]bool{snapA: true}, known.Snapshots)
	assert.Equal(t, map[string][]doctor.Attachment{idA: {{Node: "worker-1", Done: true}}, idB: {{Node: "worker-2"}}}, known.Attached)

	a.change(func() { a.run = func(string) (out, notes string, code int) { return "", "no such pod", 1 } })
	require.Equal(t, Status(2), a.Doctor(t.Context(), 0, nil, &out, &notes), "kubectl failed, so nothing is known")
	require.Equal(t, Status(2), a.DoctorTargets(t.Context(), &out, &notes))
	a.change(func() { a.run = func(string) (out, notes string, code int) { return "Nothing was found.\n", "", 0 } })
	require.NoError(t, a.Doctor(t.Context(), 0, nil, &out, &notes))
	require.NoError(t, a.DoctorTargets(t.Context(), &out, &notes, "--json"))
	assert.Equal(t, []string{"doctor", "--json"}, a.command(-1)[6:])
}

// If the list of volumes cannot be read, doctor must not treat it as empty, because then all
// volumes would be orphans.
func TestDoctorFailsIfVolumesCannotBeListed(t *testing.T) {
	for _, path := range []string{volumesPath, attachmentsPath, groupsPath, contentsPath} {
		a := newAPI(t)
		a.withVolumes()
		a.withSnapshots(`{}`)
		a.change(func() { a.fails[path] = "Error from server (Forbidden): " + path })
		a.change(func() {
			a.run = func(input string) (out, notes string, code int) {
				_, err := doctor.ParseKnown([]byte(input), driver)
				assert.Error(t, err, "doctor refuses the list")
				return "", "", 2
			}
		})
		var out bytes.Buffer
		err := a.Doctor(t.Context(), 0, nil, &out, &bytes.Buffer{})
		require.ErrorContains(t, err, "the list of volumes could not be read, so nothing was changed")
		require.ErrorContains(t, err, "Error from server (Forbidden): "+path)
	}
	// If doctor ends before it receives the list, the plugin does not wait.
	a := newAPI(t)
	a.Program = "false"
	require.Equal(t, Status(2), a.Doctor(t.Context(), time.Hour, nil, &bytes.Buffer{}, &bytes.Buffer{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, newAPI(t).Doctor(ctx, time.Hour, nil, &bytes.Buffer{}, &bytes.Buffer{}))
}

func TestSizeIsRounded(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 1023: "1023", 1024: "1Ki", 1536: "1.5Ki", 5 << 20: "5Mi", 3<<40 + 1<<39: "3.5Ti", 2000 << 50: "2000Pi"} {
		assert.Equal(t, want, size(n))
	}
}

func TestAgeIsFormatted(t *testing.T) {
	now := time.Unix(1700000000, 0)
	for d, want := range map[time.Duration]string{time.Second: "1s", 119 * time.Second: "119s", 3 * time.Minute: "3m", 47 * time.Hour: "47h", 50 * time.Hour: "2d"} {
		assert.Equal(t, want, age(now, new(now.Add(-d))))
	}
	assert.Empty(t, age(now, nil))
}

func TestOutputFormatIsParsed(t *testing.T) {
	var f Format
	require.NoError(t, f.Set("yaml"))
	assert.Equal(t, YAML, f)
	require.ErrorContains(t, f.Set("xml"), "use wide, json, yaml")
}
