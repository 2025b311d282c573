//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"strconv"

	"github.com/stretchr/testify/require"
)

// claim returns a claim. source is the YAML of its dataSource and may be empty.
func claim(name, class, size, source string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: %s
  resources: {requests: {storage: %s}}
%s`, name, class, size, source)
}

// pod returns a pod with a claim's volume at /volume.
func pod(name, claim string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
%s  volumes:
    - {name: volume, persistentVolumeClaim: {claimName: %s}}
`, name, container("  "), claim)
}

// container returns the containers for a pod's specification.
func container(indent string) string {
	return fmt.Sprintf(`%[1]sautomountServiceAccountToken: false
%[1]sterminationGracePeriodSeconds: 5
%[1]ssecurityContext: {runAsNonRoot: true, runAsUser: 65534, fsGroup: 65534}
%[1]scontainers:
%[1]s  - name: main
%[1]s    image: docker.io/library/busybox:1.37.0
%[1]s    command: [sh, -c, "trap exit TERM; sleep 365d & wait"]
%[1]s    volumeMounts:
%[1]s      - {name: volume, mountPath: /volume}
`, indent)
}

// xfsClass returns a storage class that is like spdkcsi-sc, but uses XFS. A mounted XFS can grow
// even without CAP_SYS_RESOURCE.
func xfsClass(name string) string {
	text := fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
allowVolumeExpansion: true
parameters:
  csi.storage.k8s.io/fstype: xfs
`, name, driverName)
	for _, call := range []string{"provisioner", "controller-publish", "controller-expand"} {
		text += fmt.Sprintf("  csi.storage.k8s.io/%[1]s-secret-name: %[2]s\n  csi.storage.k8s.io/%[1]s-secret-namespace: %[3]s\n", call, driverSecret, driverNamespace)
	}
	return text
}

const (
	// writeFile writes 4 MiB of random data to a file or device, and prints the checksum of the
	// data.
	writeFile = "dd if=/dev/urandom of=%[1]s bs=1M count=4 2>/dev/null; sync; " + sumFile
	sumFile   = "dd if=%[1]s bs=1M count=4 2>/dev/null | sha256sum | cut -c1-64"
)

// write writes random data to a file or device in a pod, and returns its checksum.
func (n *namespace) write(pod, file string) string {
	n.t.Helper()
	return n.exec(pod, fmt.Sprintf(writeFile, file))
}

// sum returns the checksum of the data that write has written.
func (n *namespace) sum(pod, file string) string {
	n.t.Helper()
	return n.exec(pod, fmt.Sprintf(sumFile, file))
}

// kib returns the size in KiB of the file system in a pod.
func (n *namespace) kib(pod string) int {
	n.t.Helper()
	size, err := strconv.Atoi(n.exec(pod, `set -- $(df -k /volume | sed -n '$p'); echo $2`))
	require.NoError(n.t, err)
	return size
}

// volume returns the name of a claim's volume.
func (n *namespace) volume(claim string) string {
	n.t.Helper()
	return n.run("get", "pvc", claim, "--output=jsonpath={.spec.volumeName}")
}

// detached waits until a claim's volume is attached to no node, and so is unmounted everywhere.
func (n *namespace) detached(claim string) {
	n.t.Helper()
	volume := n.volume(claim)
	n.eventually("volume "+claim+" is detached", func(ctx context.Context) error {
		nodes, err := env.cluster.Kubectl().Run(ctx, "", "get", "volumeattachments", "--output=jsonpath={.items[?(@.spec.source.persistentVolumeName=='"+volume+"')].spec.nodeName}")
		if err == nil && nodes != "" {
			err = fmt.Errorf("it is attached to %s", nodes)
		}
		return err
	})
}
