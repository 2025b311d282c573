package doctor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/doctor"
	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/volume"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

type m = map[string]any

// A cluster contains Kubernetes objects in the format of kubectl get -o json.
type cluster struct{ items []m }

func (c *cluster) pv(name, handle, size, phase string) {
	c.items = append(c.items, m{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": m{"name": name, "annotations": m{"pv.kubernetes.io/provisioned-by": "csi.spdk.io"}},
		"spec": m{
			"capacity": m{"storage": size}, "persistentVolumeReclaimPolicy": "Delete", "accessModes": []string{"ReadWriteOnce"},
			"csi": m{"driver": "csi.spdk.io", "volumeHandle": handle, "volumeAttributes": m{"lvstore": "lvs0"}},
		},
		"status": m{"phase": phase},
	})
}

func (c *cluster) attach(pv, node string) {
	c.items = append(c.items, m{
		"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": m{"name": "csi-" + pv + node},
		"spec": m{"attacher": "csi.spdk.io", "nodeName": node, "source": m{"persistentVolumeName": pv}}, "status": m{"attached": true},
	})
}

func (c *cluster) snapshot(handle string) {
	c.items = append(c.items, m{"kind": "VolumeSnapshotContent", "metadata": m{"name": handle}, "spec": m{"driver": "csi.spdk.io"}, "status": m{"snapshotHandle": handle}})
}

func (c *cluster) known(t *testing.T) *doctor.Known {
	t.Helper()
	text, err := json.Marshal(m{"apiVersion": "v1", "kind": "List", "items": c.items, "metadata": m{"resourceVersion": ""}})
	require.NoError(t, err)
	known, err := doctor.ParseKnown(text, "csi.spdk.io")
	require.NoError(t, err)
	return known
}

func with(e doctor.Examination, known *doctor.Known) doctor.Examination {
	e.Known = func() (*doctor.Known, error) { return known, nil }
	return e
}

// Doctor compares the volumes, sizes, snapshots and attachments in Kubernetes with the target.
func TestObjectsAreComparedWithKubernetes(t *testing.T) {
	f := newFixture(t, export.TCP)
	var c cluster
	id := func(volumeUUID string) string { return "t0:" + volumeUUID }
	healthy := f.create(t, "pvc-healthy")
	f.publish(t, healthy, "n1")
	c.pv("pv-healthy", id(healthy.UUID), "8Mi", "Bound")
	c.attach("pv-healthy", "n1")
	snap, err := f.Snapshot(t.Context(), "s", f.create(t, "pvc-source").UUID)
	require.NoError(t, err)
	c.pv("pv-source", id(snap.SourceUUID), "8388608", "Bound")
	c.snapshot(id(snap.UUID))
	c.pv("pv-gone", id(uuid.NewString()), "8Mi", "Released") // Kubernetes is about to delete it
	c.pv("static", uuid.NewString(), "8Mi", "Bound")
	_, err = f.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "of-others", LvsName: new("lvs1"), SizeInMiB: 4}) // in an lvstore that the driver may not use
	require.NoError(t, err)
	require.Empty(t, run(t, with(f.examination(), c.known(t))), "nothing is wrong yet")

	expected := map[string]doctor.Kind{}
	orphan := f.create(t, "pvc-orphan")
	expected["volume lvs0/pvc-orphan"] = doctor.Orphan
	other, err := f.Snapshot(t.Context(), "other", snap.SourceUUID)
	require.NoError(t, err)
	expected["snapshot lvs0/"+other.Name] = doctor.Orphan
	missing, elsewhere := id(uuid.NewString()), "t9:"+uuid.NewString()
	c.pv("pv-missing", missing, "8Mi", "Bound")
	expected["PersistentVolume pv-missing ("+missing+")"] = doctor.Missing
	c.pv("pv-elsewhere", elsewhere, "8Mi", "Bound")
	expected["PersistentVolume pv-elsewhere ("+elsewhere+")"] = doctor.Missing
	small := f.create(t, "pvc-small")
	c.pv("pv-small", id(small.UUID), "1Gi", "Bound")
	expected["PersistentVolume pv-small ("+id(small.UUID)+")"] = doctor.TooSmall
	deleting := f.create(t, "pvc-deleting")
	c.pv("pv-deleting", id(deleting.UUID), "8Mi", "Failed")
	expected["PersistentVolume pv-deleting ("+id(deleting.UUID)+")"] = doctor.HalfMade
	moved := f.create(t, "pvc-moved")
	f.publish(t, moved, "n1")
	c.pv("pv-moved", id(moved.UUID), "8Mi", "Bound")
	c.attach("pv-moved", "n2")
	expected["PersistentVolume pv-moved ("+id(moved.UUID)+") on node n2"] = doctor.NotExported
	n1 := drivertest.MultipathHost("n1")
	names := n1.NQN + ", " + n1.Multipath
	if n1.Multipath < n1.NQN {
		names = n1.Multipath + ", " + n1.NQN
	}
	expected["PersistentVolume pv-moved ("+id(moved.UUID)+") to host "+names] = doctor.WrongHost

	before := f.objects(t)
	found := run(t, with(f.examination(), c.known(t)))
	got := map[string]doctor.Kind{}
	for _, x := range found {
		got[x.Object] = x.Kind
		assert.Empty(t, x.Repair, "%s: it is only reported", x.Object)
		assert.NotEmpty(t, x.Command)
	}
	assert.Equal(t, expected, got)

	// An orphan is deleted only if its id is given. Volumes that are not orphans are never deleted.
	targets := f.examination().Targets
	for _, not := range []string{id(healthy.UUID), id(other.UUID), id(small.UUID), "lvs0/pvc-orphan", orphan.UUID} {
		require.Error(t, doctor.DeleteOrphans(found, targets, []string{not}), not)
	}
	require.NoError(t, doctor.DeleteOrphans(found, targets, []string{id(orphan.UUID)}))
	for _, x := range found {
		if x.Repair != "" {
			require.NoError(t, x.Apply(t.Context()))
		}
	}
	delete(before, "lvol lvs0/pvc-orphan")
	assert.Equal(t, before, f.objects(t))
}

// The doctor command does not delete a volume that is created during the examination, or an orphan
// that a host is using.
func TestNewVolumesAndUsedOrphansAreKept(t *testing.T) {
	f := newFixture(t, export.TCP)
	e := f.examination()
	known, err := doctor.ParseKnown(nil, "csi.spdk.io")
	require.NoError(t, err)
	e = with(e, known)
	f.create(t, "pvc-0")
	e.Wait = func(context.Context) error {
		f.create(t, "pvc-1")
		return nil
	}
	found := run(t, e)
	require.Len(t, found, 1)
	assert.Equal(t, "volume lvs0/pvc-0", found[0].Object)
	e.Held = func() []string { return []string{"name pvc-0", "name pvc-1"} }
	assert.Empty(t, run(t, e))

	used := f.create(t, "pvc-used")
	f.publish(t, used, "n1")
	e.Held, e.Wait = nil, func(context.Context) error { return nil }
	found = run(t, e)
	require.NoError(t, doctor.DeleteOrphans(found, e.Targets, []string{"t0:" + used.UUID}))
	before := f.objects(t)
	for _, x := range found {
		if x.Repair != "" {
			require.ErrorIs(t, x.Apply(t.Context()), volume.ErrInUse)
		}
	}
	assert.Equal(t, before, f.objects(t))
}

// A volume that exists on two targets is reported, and so are two volumes with the same provisioned
// name in two lvstores.
func TestDuplicateVolumesAreFound(t *testing.T) {
	const name = "pvc-11111111-2222-4333-8444-555555555555"
	simulatedOnly(t)
	f, g := newFixture(t, export.TCP), newFixture(t, export.TCP)
	other := g.Config
	other.Name = "t1"
	g.Service = volume.NewTarget(other).Service(g.rpc)
	f.create(t, name)
	f.create(t, "scratch")
	g.create(t, "scratch")
	require.Empty(t, run(t, examinationOf(f.Service, g.Service)), "a name chosen by a person proves nothing")
	_, err := g.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: name + ".used", LvsName: new("lvs0"), SizeInMiB: 4})
	require.NoError(t, err)
	found := run(t, examinationOf(f.Service, g.Service))
	require.Len(t, found, 1)
	assert.Equal(t, doctor.Duplicate, found[0].Kind)
	assert.Contains(t, found[0].Problem, "t0:lvs0/"+name+" (")
	assert.Contains(t, found[0].Problem, "t1:lvs0/"+name+".used (")
}

func TestVolumeListIsParsed(t *testing.T) {
	id := "t0:" + uuid.NewString()
	lines, err := doctor.ParseKnown(fmt.Appendf(nil, "# volumes\n\n %s \n", id), "csi.spdk.io")
	require.NoError(t, err)
	assert.Equal(t, map[string]doctor.PV{id: {}}, lines.Volumes)
	assert.Nil(t, lines.Snapshots)
	assert.Nil(t, lines.Attached)

	pv := fmt.Sprintf(`{"kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {"capacity": {"storage": "1Gi"}, "csi": {"driver": "csi.spdk.io", "volumeHandle": %q}}}`, id)
	foreign := `{"kind": "PersistentVolume", "metadata": {"name": "b"}, "spec": {"capacity": {"storage": "1Gi"}, "nfs": {}}}`
	attachment := `{"kind": "VolumeAttachment", "spec": {"attacher": "csi.spdk.io", "nodeName": "n1", "source": {"persistentVolumeName": "a"}}, "status": {"attached": true}, "metadata": {"deletionTimestamp": "2026-11-22T00:00:00Z"}}`
	for name, text := range map[string]string{
		"one list":      `{"kind": "List", "items": [` + attachment + "," + pv + "," + foreign + `]}`,
		"typed lists":   `{"kind": "PersistentVolumeList", "items": [` + pv + `]} {"kind": "VolumeAttachmentList", "items": [` + attachment + `]}`,
		"single object": pv + "\n" + attachment,
	} {
		known, err := doctor.ParseKnown([]byte(text), "csi.spdk.io")
		require.NoError(t, err, name)
		assert.Equal(t, map[string]doctor.PV{id: {Name: "a", Bytes: 1 << 30, ByHand: true}}, known.Volumes, name)
		assert.Equal(t, map[string][]doctor.Attachment{id: {{Node: "n1"}}}, known.Attached, name)
	}
	for text, says := range map[string]string{
		"pvc-1\n":                        "line 1",
		`{"kind": "Pod"}`:                `"Pod"`,
		`{"kind": "List"`:                "not the output of kubectl",
		`{"items": []}`:                  `kind ""`,
		`{"kind": "List", "items": [1]}`: "not the output of kubectl",
		`{"kind": "List", "metadata": {"continue": "x"}}`:                                                     "one page of several",
		`{"kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {"csi": {"driver": "csi.spdk.io"}}}`: "PersistentVolume a: capacity",
	} {
		_, err := doctor.ParseKnown([]byte(text), "csi.spdk.io")
		require.ErrorContains(t, err, says, text)
	}
	_, err = doctor.ParseKnown([]byte(foreign), "csi.spdk.io")
	require.NoError(t, err)
}

// ParseKnown never panics, whatever the text.
func FuzzParseKnown(f *testing.F) {
	f.Add([]byte("t0:8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"))
	f.Add([]byte(`{"kind": "List", "items": [{"kind": "VolumeAttachment"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if known, err := doctor.ParseKnown(text, "csi.spdk.io"); err == nil && known == nil {
			t.Error("neither a list nor an error")
		}
	})
}

// The PersistentVolume of a replicated volume does not name the targets of its replicas. The
// replicas are not orphans, and --delete-volume does not accept them.
func TestReplicasAreNotOrphans(t *testing.T) {
	f := newFixture(t, export.TCP)
	c := &cluster{}
	other := f.create(t, "pvc-other")
	c.pv("pv-other", "t0:"+other.UUID, "8Mi", "Bound")
	stores, err := f.Stores(t.Context())
	require.NoError(t, err)
	id := uuid.NewString()
	v, err := f.Create(t.Context(), stores[0], volume.Spec{Name: "pvc-1", MinBytes: 8 * mib, Replica: &volume.ReplicaID{Volume: id, Number: 1}})
	require.NoError(t, err)
	require.NoError(t, f.AdmitReplica(t.Context(), v, 1, drivertest.Host("n1"), func(context.Context) error { return nil }))
	found := run(t, with(f.examination(), c.known(t)))
	require.Empty(t, found)
	require.Error(t, doctor.DeleteOrphans(found, f.examination().Targets, []string{"t0:" + v.UUID}))
	c.pv("pv-1", "replicated:"+id, "4Mi", "Bound")
	c.attach("pv-1", "n1")
	require.Empty(t, run(t, with(f.examination(), c.known(t))))

	c.pv("pv-2", "replicated:"+uuid.NewString(), "4Mi", "Bound")
	found = run(t, with(f.examination(), c.known(t)))
	require.Len(t, found, 1)
	require.Equal(t, doctor.Missing, found[0].Kind)
	partial := f.examination()
	partial.Partial = true
	require.Empty(t, run(t, with(partial, c.known(t))))
}
