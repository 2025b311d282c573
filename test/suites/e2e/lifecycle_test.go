//go:build kubernetes

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnusedVolumeIsExpanded(t *testing.T) {
	n := parallelNamespace(t, "an ext4 volume that no pod uses grows from 64 to 128 MiB; the next pod has the space and the data")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	written, before := n.write("first", "/volume/file"), n.kib("first")
	n.run("delete", "pod", "first")
	n.run("patch", "pvc", "data", "--patch", `{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}`)
	// The next pod must find the volume expanded and unmounted, because this kernel may refuse to
	// grow a mounted file system.
	n.detached("data")
	n.await("pv/"+n.volume("data"), "jsonpath={.spec.capacity.storage}=128Mi")
	n.apply(pod("second", "data"))
	n.ready("second")
	n.await("pvc/data", "jsonpath={.status.capacity.storage}=128Mi")
	assert.Greater(t, n.kib("second"), before+48*1024)
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestRefusedExpansionCompletesOnTheNextMount(t *testing.T) {
	n := parallelNamespace(t, "an ext4 volume is expanded while a pod uses it: if the kernel refuses to grow it while it is mounted, the pod keeps writing, and the next pod has the space")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("first", "data"))
	n.ready("first")
	before := n.kib("first")
	n.run("patch", "pvc", "data", "--patch", `{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}`)
	n.await("pv/"+n.volume("data"), "jsonpath={.spec.capacity.storage}=128Mi")
	written := n.write("first", "/volume/file")
	n.run("delete", "pod", "first")
	n.detached("data")
	n.apply(pod("second", "data"))
	n.ready("second")
	assert.Greater(t, n.kib("second"), before+48*1024)
	assert.Equal(t, written, n.sum("second", "/volume/file"))
}

func TestRetainedVolumeOutlivesItsClaim(t *testing.T) {
	n := parallelNamespace(t, "reclaim policy Retain: the volume outlives its claim, and a new claim gets its data; with Delete, it is deleted")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.bound("data")
	pv := n.volume("data")
	retain, name := n.retainCommands()
	n.run("patch", "pv", pv, "--patch", retain)
	n.apply(pod("first", "data"))
	n.ready("first")
	written := n.write("first", "/volume/file")
	n.run("delete", "pod", "first")
	n.run("delete", "pvc", "data")
	n.await("pv/"+pv, "jsonpath={.status.phase}=Released")
	objects, err := env.driver.server.Objects(t.Context())
	require.NoError(t, err)
	assert.Contains(t, strings.Join(objects, " "), pv, "the volume on the target")
	n.run("patch", "pv", pv, "--patch", name)
	other := "retain-other"
	n.run("create", "namespace", other)
	t.Cleanup(func() { n.run("delete", "namespace", other, "--wait=false") })
	foreign := namespace{t: t, name: other, kubectl: env.cluster.Kubectl().In(other), row: n.row}
	foreign.apply(claim("again", storageClass, "64Mi", ""))
	foreign.bound("again")
	require.NotEqual(t, pv, foreign.volume("again"), "a claim that is not named must not get the data")
	n.apply(claim("again", storageClass, "64Mi", "  volumeName: "+pv+"\n"))
	n.apply(pod("second", "again"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))
	n.run("patch", "pv", pv, "--patch", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
}

// retainCommands returns the patches in docs/csi-volumes.md that keep a volume and bind it to a
// claim named "again".
func (n *namespace) retainCommands() (retain, name string) {
	n.t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs/csi-volumes.md"))
	require.NoError(n.t, err)
	_, section, ok := strings.Cut(string(text), "## Keep a volume without its claim\n")
	require.True(n.t, ok)
	patches := regexp.MustCompile(`kubectl patch pv \$PV -p '(.*)'`).FindAllStringSubmatch(section, 2)
	require.Len(n.t, patches, 2)
	return patches[0][1], strings.Replace(patches[1][1], `"namespace": "default"`, `"namespace": "`+n.name+`"`, 1)
}

func TestStaticVolumeIsNeverDeleted(t *testing.T) {
	n := parallelNamespace(t, "the manual's example of a volume created by hand: a pod uses it, and the driver never deletes it")
	ctx := t.Context()
	uuid, err := env.driver.server.CreateVolume(ctx, "by-hand", 256)
	require.NoError(t, err)
	_, err = env.driver.server.ExportAsSPDKCSI(ctx, uuid)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(repository, "deploy/kubernetes/examples/static-pv.yaml"))
	require.NoError(t, err)
	n.apply(strings.NewReplacer(
		"aa481c21-26f8-4056-87fa-cd306f69a71e", uuid, "namespace: default", "namespace: "+n.name, "targetType: TCP", fmt.Sprintf("targetType: loop\n      loopDir: %q", env.driver.data()),
	).Replace(string(text)))
	n.keptVolume("spdkcsi-pvc-static", "spdkcsi-pv-static", uuid)
}

// The PersistentVolume looks like one that SPDK's spdk-csi has created with csi-provisioner, except
// for its names and Retain. It names no Secret except the one for provisioning, and its attributes
// describe the export.
const spdkCSIVolume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: pvc-of-spdk-csi}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 256Mi}
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ` + storageClass + `
  claimRef: {namespace: %[3]s, name: data}
  csi:
    driver: csi.spdk.io
    fsType: ext4
    volumeHandle: ` + storageServer + `:%[1]s
    volumeAttributes: {fsType: ext4, lvolSize: "268435456", lvstore: lvs0, model: %[1]q, nqn: %[2]q, targetAddr: 10.99.0.1, targetPort: "4420", targetType: TCP,
      storage.kubernetes.io/csiProvisionerIdentity: 1795416126408-6622-csi.spdk.io}
`

func TestVolumeCreatedBySPDKCSICanBeUsed(t *testing.T) {
	n := parallelNamespace(t, "a PersistentVolume created by SPDK's spdk-csi: a pod uses it, and its export admits only that node")
	ctx := t.Context()
	uuid, err := env.driver.server.CreateVolume(ctx, "of-spdk-csi", 256)
	require.NoError(t, err)
	nqn, err := env.driver.server.ExportAsSPDKCSI(ctx, uuid)
	require.NoError(t, err)
	n.apply(fmt.Sprintf(spdkCSIVolume, uuid, nqn, n.name))
	n.apply(claim("data", storageClass, "256Mi", "  volumeName: pvc-of-spdk-csi\n"))
	n.keptVolume("data", "pvc-of-spdk-csi", uuid)
}

// keptVolume uses a volume that the driver must not delete, and then removes it as an administrator
// would.
func (n *namespace) keptVolume(claim, pv, uuid string) {
	n.t.Helper()
	ctx := n.t.Context()
	n.apply(pod("first", claim))
	n.ready("first")
	written := n.write("first", "/volume/file")
	everybody, err := env.driver.server.AdmitsEverybody(ctx, uuid)
	require.NoError(n.t, err)
	assert.False(n.t, everybody, "while it is used, the export admits only its node")
	n.run("delete", "pod", "first")
	n.apply(pod("second", claim))
	n.ready("second")
	assert.Equal(n.t, written, n.sum("second", "/volume/file"))
	n.run("delete", "pod", "second")
	n.run("delete", "pvc", claim)
	n.await("pv/"+pv, "jsonpath={.status.phase}=Released")
	n.run("delete", "pv", pv)
	require.NoError(n.t, env.driver.server.DeleteVolume(ctx, uuid), "the driver has removed the export, but not the volume")
}

const attributesClass = `apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: %s}
driverName: csi.spdk.io
parameters: {qosIOPS: "%d"}
`

func TestVolumeAttributesClassLimitsIO(t *testing.T) {
	n := parallelNamespace(t, "a VolumeAttributesClass limits a volume's I/O while a pod uses it, and another one changes the limit")
	for name, iops := range map[string]int{"silver": 5000, "gold": 20000} {
		n.apply(fmt.Sprintf(attributesClass, name, iops))
	}
	t.Cleanup(func() { n.run("delete", "volumeattributesclass", "silver", "gold") })
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.apply(pod("writer", "data"))
	n.ready("writer")
	_, uuid, ok := strings.Cut(n.run("get", "pv", n.volume("data"), "--output=jsonpath={.spec.csi.volumeHandle}"), ":")
	require.True(t, ok)
	for name, iops := range map[string]uint64{"silver": 5000, "gold": 20000} {
		start := time.Now()
		n.run("patch", "pvc", "data", "--patch", `{"spec":{"volumeAttributesClassName":"`+name+`"}}`)
		n.await("pvc/data", "jsonpath={.status.currentVolumeAttributesClassName}="+name)
		n.figure("%s after %.1f s", name, time.Since(start).Seconds())
		limit, err := env.driver.server.IOPS(t.Context(), uuid)
		require.NoError(t, err)
		assert.Equal(t, iops, limit)
	}
	n.write("writer", "/volume/file")
	n.run("delete", "pod", "writer")
	n.run("delete", "pvc", "data")
}

const groupSnapshot = `apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: database}
spec:
  volumeGroupSnapshotClassName: spdkcsi-groupsnapclass
  source: {selector: {matchLabels: {app: database}}}
`

func TestGroupSnapshotIsRestored(t *testing.T) {
	n := parallelNamespace(t, "a VolumeGroupSnapshot of two claims in use: both are restored with their data from that time")
	sums := map[string]string{}
	for _, name := range []string{"log", "tables"} {
		n.apply(claim(name, storageClass, "64Mi", ""))
		n.run("label", "pvc", name, "app=database")
		n.apply(pod(name, name))
	}
	for _, name := range []string{"log", "tables"} {
		n.ready(name)
		sums[name] = n.write(name, "/volume/file")
	}
	start := time.Now()
	n.apply(groupSnapshot)
	n.await("volumegroupsnapshot/database", "jsonpath={.status.readyToUse}=true")
	n.figure("%.1f s", time.Since(start).Seconds())
	for name, written := range sums {
		n.write(name, "/volume/file")
		n.apply(claim("restored-"+name, storageClass, "64Mi", "  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: "+n.snapshotOf(name)+"}\n"))
		n.apply(pod("restored-"+name, "restored-"+name))
		n.ready("restored-" + name)
		assert.Equal(t, written, n.sum("restored-"+name, "/volume/file"), name)
		n.run("delete", "pod", "restored-"+name)
		n.run("delete", "pvc", "restored-"+name)
	}
	n.run("delete", "volumegroupsnapshot", "database", "--timeout=4m")
}

// snapshotOf returns the snapshot of a claim's volume in a group.
func (n *namespace) snapshotOf(claim string) string {
	n.t.Helper()
	handle := n.run("get", "pv", n.volume(claim), "--output=jsonpath={.spec.csi.volumeHandle}")
	name := n.run("get", "volumesnapshotcontents", "--output=jsonpath={.items[?(@.spec.source.volumeHandle=='"+handle+"')].spec.volumeSnapshotRef.name}")
	require.NotEmpty(n.t, name, "the snapshot of %s", claim)
	return name
}

var refusedDeletion = regexp.MustCompile(`method=DeleteSnapshot .*has 2 clones.*code=FailedPrecondition`)

func TestSnapshotWithClonesIsNotDeleted(t *testing.T) {
	n := parallelNamespace(t, "a snapshot with two clones is not deleted, and the driver's log says why; when one clone is gone, it is deleted")
	n.apply(claim("data", storageClass, "64Mi", ""))
	n.bound("data")
	n.apply(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: snap}, spec: {volumeSnapshotClassName: spdkcsi-snapclass, source: {persistentVolumeClaimName: data}}}`)
	n.await("volumesnapshot/snap", "jsonpath={.status.readyToUse}=true")
	n.apply(claim("restored", storageClass, "64Mi", "  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: snap}\n"))
	n.bound("restored")
	content := n.run("get", "volumesnapshot", "snap", "--output=jsonpath={.status.boundVolumeSnapshotContentName}")
	n.run("delete", "volumesnapshot", "snap", "--wait=false")
	// csi-snapshotter v8.6.0 does not copy the driver's message to the event or the content's
	// status.
	n.eventually("the driver's log says why", func(ctx context.Context) error {
		log, err := env.driver.kubectl.Run(ctx, "", "logs", "--selector=app="+driverDeployment, "--container="+driverDeployment, "--tail=-1")
		if err == nil && !refusedDeletion.MatchString(log) {
			err = errors.New("no refused DeleteSnapshot with the names of clones")
		}
		return err
	})
	n.run("delete", "pvc", "restored")
	start := time.Now()
	n.await("volumesnapshotcontent/"+content, "delete")
	n.figure("deleted %.0f s after the clone", time.Since(start).Seconds())
}
