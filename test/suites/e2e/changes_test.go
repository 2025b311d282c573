//go:build kubernetes

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestChangedBlocksSufficeForBackups uses these sizes.
const (
	volumeMiB  = 400
	writtenMiB = 200
	changedMiB = 4 // 1% of the volume
)

// devicePod returns a pod that contains the backup programs, a device for each claim in devices,
// and a directory /backup.
func devicePod(name, account string, devices map[string]string) string {
	var mounts, volumes strings.Builder
	for device, claim := range devices {
		fmt.Fprintf(&mounts, "        - {name: %s, devicePath: /dev/%s}\n", device, device)
		fmt.Fprintf(&volumes, "    - {name: %s, persistentVolumeClaim: {claimName: %s}}\n", device, claim)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  serviceAccountName: %s
  terminationGracePeriodSeconds: 5
  containers:
    - name: main
      image: %s
      command: [sh, -c, "trap exit TERM; sleep 365d & wait"]
      volumeMounts: [{name: backup, mountPath: /backup}]
      volumeDevices:
%s  volumes:
    - {name: backup, emptyDir: {}}
%s`, name, account, backupImage, mounts.String(), volumes.String())
}

// blockClaim returns a claim for a raw block volume, which is restored from a snapshot if one is
// given.
func blockClaim(name, snapshot string) string {
	source := "  volumeMode: Block\n"
	if snapshot != "" {
		source += "  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: " + snapshot + "}\n"
	}
	return claim(name, storageClass, fmt.Sprint(volumeMiB, "Mi"), source)
}

func (n *namespace) takeSnapshot(name, claim string) {
	n.t.Helper()
	n.apply(fmt.Sprintf(`{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {name: %s}, spec: {volumeSnapshotClassName: spdkcsi-snapclass, source: {persistentVolumeClaimName: %s}}}`, name, claim))
	n.await("volumesnapshot/"+name, "jsonpath={.status.readyToUse}=true")
}

// backupAccount creates a service account for a backup program in a namespace, with the permissions
// that the manual grants it there.
func (n *namespace) backupAccount(name string) {
	n.t.Helper()
	n.apply(strings.NewReplacer("name: backup\n", "name: "+name+"\n", "[backup]", "["+name+"]", "namespace: default", "namespace: "+n.name).Replace(n.readExample("backup-rights.yaml")))
	n.t.Cleanup(func() { n.run("delete", "clusterrole,clusterrolebinding", name) })
}

// snapshotHandle returns the driver's name of a snapshot.
func (n *namespace) snapshotHandle(snapshot string) string {
	n.t.Helper()
	content := n.run("get", "volumesnapshot", snapshot, "--output=jsonpath={.status.boundVolumeSnapshotContentName}")
	return n.run("get", "volumesnapshotcontent", content, "--output=jsonpath={.status.snapshotHandle}")
}

// fails runs a script that must fail in a pod, and returns its output.
func (n *namespace) fails(pod, script string) string {
	n.t.Helper()
	out := n.exec(pod, "if "+script+" >/tmp/out 2>&1; then echo it succeeded; fi; cat /tmp/out")
	require.NotContains(n.t, out, "it succeeded")
	return out
}

// listed returns the sum of the sizes in a list of ranges.
func (n *namespace) listed(pod, file string) int {
	n.t.Helper()
	bytes, err := strconv.Atoi(n.exec(pod, "awk 'NR > 2 { sum += $5 } END { printf \"%d\", sum }' "+file))
	require.NoError(n.t, err)
	return bytes
}

func TestChangedBlocksSufficeForBackups(t *testing.T) {
	n := disturbingNamespace(t, "the manual's example: a full and an incremental backup by csi-snapshot-metadata copy what was written, and the restored device equals the snapshot; upstream's comparison of devices passes; callers without rights, other audiences, and deleted bases are refused")
	n.serveMetadataService()
	n.backupAccount("backup")
	n.apply(blockClaim("data", ""))
	n.apply(devicePod("database", "backup", map[string]string{"data": "data"}))
	n.ready("database")
	n.exec("database", fmt.Sprintf("dd if=/dev/urandom of=/dev/data bs=1M count=%d conv=fsync 2>/dev/null", writtenMiB))
	n.takeSnapshot("monday", "data")
	n.exec("database", fmt.Sprintf("dd if=/dev/urandom of=/dev/data bs=1M seek=%d count=%d conv=fsync 2>/dev/null", writtenMiB/2, changedMiB))
	n.takeSnapshot("tuesday", "data")
	n.run("delete", "pod", "database")
	n.apply(strings.Join([]string{blockClaim("monday", "monday"), blockClaim("tuesday", "tuesday"), blockClaim("restored", ""), blockClaim("copy", "")}, "---\n"))
	n.apply(devicePod("backup", "backup", map[string]string{"monday": "monday", "tuesday": "tuesday", "restored": "restored", "copy": "copy"}))
	n.ready("backup")

	blocks := pageBlocks(t, "### Example")
	require.Len(t, blocks, 4, "a function, a full and an incremental backup, a restored device")
	in := func(block string) string {
		return "cd /backup; " + blocks[0] + strings.ReplaceAll(block, "-n default", "-n "+n.name)
	}
	n.exec("backup", fmt.Sprintf("dd if=/dev/urandom of=/backup/data.img bs=1M count=%d 2>/dev/null", volumeMiB)) // an earlier backup
	start := time.Now()
	n.exec("backup", in(blocks[1]))
	full := n.listed("backup", "/backup/monday.ranges")
	n.figure("full: %d of %d MiB in %.1f s", full>>20, volumeMiB, time.Since(start).Seconds())
	n.exec("backup", "cmp /backup/data.img /dev/monday")
	start = time.Now()
	n.exec("backup", in(blocks[2]))
	changed := n.listed("backup", "/backup/tuesday.ranges")
	n.figure("incremental: %d MiB in %.1f s", changed>>20, time.Since(start).Seconds())
	assert.Equal(t, writtenMiB<<20, full)
	assert.Equal(t, changedMiB<<20, changed)
	n.exec("backup", in(blocks[3]))
	n.exec("backup", "cmp /dev/tuesday /dev/restored")

	// Kubernetes' own suite runs the verifier with these arguments.
	verify := "snapshot-metadata-verifier -max-results 10 -starting-offset 0 -namespace " + n.name
	n.exec("backup", verify+" -snapshot tuesday -source-device-path /dev/tuesday -target-device-path /dev/copy")
	n.exec("backup", verify+" -snapshot tuesday -previous-snapshot monday -source-device-path /dev/tuesday -target-device-path /dev/monday")
	n.exec("backup", fmt.Sprintf("dd if=/dev/urandom of=/dev/copy bs=1M seek=%d count=1 conv=fsync 2>/dev/null", volumeMiB-1))
	assert.Contains(t, n.fails("backup", verify+" -snapshot tuesday -source-device-path /dev/tuesday -target-device-path /dev/copy"), "do not match", "the comparison detects a difference")

	// The account is allowed to do the same in its own namespace, but must not be able to read the
	// snapshots in the test's namespace.
	lister := "snapshot-metadata-lister -csi-driver " + driverName + " -n " + n.name + " -s tuesday"
	n.exec("backup", lister)
	other := &namespace{t: t, name: n.name + "-other", kubectl: env.cluster.Kubectl().In(n.name + "-other"), row: n.row}
	n.run("create", "namespace", other.name)
	t.Cleanup(func() { n.run("delete", "namespace", other.name, "--wait=false") })
	other.backupAccount("stranger")
	other.apply(devicePod("stranger", "stranger", nil))
	other.ready("stranger")
	assert.Contains(t, other.fails("stranger", lister), "PermissionDenied")

	// A token for another audience is rejected.
	service := n.run("get", "snapshotmetadataservice", driverName, "--output=jsonpath={.spec.caCert}")
	n.apply(fmt.Sprintf("{apiVersion: cbt.storage.k8s.io/v1beta1, kind: SnapshotMetadataService, metadata: {name: another}, spec: {address: %q, audience: another, caCert: %s}}", metadataHost+":"+metadataPort, service))
	t.Cleanup(func() { n.run("delete", "snapshotmetadataservice", "another") })
	assert.Contains(t, n.fails("backup", strings.Replace(lister, driverName, "another", 1)), "Unauthenticated")

	monday := n.snapshotHandle("monday")
	n.exec("backup", lister+" -P "+monday)
	n.run("delete", "pod", "backup")
	n.run("delete", "pvc", "monday")
	n.run("delete", "volumesnapshot", "monday", "--timeout=4m")
	n.apply(devicePod("later", "backup", nil))
	n.ready("later")
	assert.Contains(t, n.fails("later", lister+" -P "+monday), "NotFound")
	n.exec("later", lister)
}
