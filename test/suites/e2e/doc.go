// Package e2e tests the driver on a real Kubernetes cluster. Run it as root with
//
//	make test-k8s
//	make test-k8s ARGS="-run TestSnapshotsAndClonesHaveTheRightData"  # chosen tests
//	make test-k8s ARGS=-upstream             # also Kubernetes' own tests of storage drivers: see the tests TestUpstream*
//	make test-k8s ARGS="-upstream -populator=DIR" # with the one that needs programs which the tests do not build
//	make test-k8s ARGS=-network-policies=PATH # with the charts' NetworkPolicies enforced by the program kube-router
//	make test-k8s ARGS="-run TestVolumesSurviveChurn -churn 30" # volumes are created and deleted while the driver's processes are killed
//	make test-k8s ARGS=-keep                 # the cluster stays until Ctrl-C; go test itself needs -timeout 0 for that
//	make test-k8s ARGS=-logs=DIR             # all logs, including the pods', in DIR
//
// The first run builds Kubernetes and the CSI sidecars from the module graph in kubernetes/go.mod,
// and csi-snapshot-metadata from that in snapshotmetadata/go.mod, whose dependencies are newer. The
// programs are stored in a directory in the user's cache. Debian packages (containerd, runc, CNI
// plugins and their dependencies) are unpacked into that directory, but not installed. Later runs
// build only the driver's images, the proxy and the example programs of csi-snapshot-metadata.
//
// A run has two processes. The outer process builds everything, starts the inner process in
// separate namespaces (package sandbox), and cleans up after the inner process has ended for any
// reason. The inner process starts the storage server (package storage) and the cluster (package
// cluster), and runs the tests. It does not stop anything: when the sandbox's first process ends,
// the kernel ends all others.
//
// The driver runs as the pods of the Helm chart deploy/helm/spdk-csi with self-registration, from
// images that deploy/image builds. The chart's values set the configuration and the credentials,
// and let the nodes attach the simulated target's volumes as loop devices. Differences from a real
// installation:
//   - The storage is simulated, with real data in files; loop devices replace NVMe/TCP (which
//     test/suites/kernel tests).
//   - The target's device contains the lvstore's metadata in SPDK's format. Its snapshots own the
//     clusters whose bytes differ from those in the snapshot below, but not those that were
//     overwritten with the same bytes.
//   - Sidecar images are built from the module graph. livenessprobe is a stand-in (its module is
//     not on the module proxy), and node-driver-registrar is not tested.
//   - The two nodes share a kernel: a node that loses power loses its processes, its mounts and
//     what its volumes' file systems have not written, but neither a kernel's state nor a disk's
//     cache. There is no kube-proxy and no DNS: the tests of csi-snapshot-metadata serve its
//     Service and its name themselves.
//   - NetworkPolicies are enforced only with -network-policies and the path of kube-router, v2.11
//     or later, which the tests do not build: not everything that it needs is on the module proxy.
//     It runs beside kubelet, only as a policy controller, with Debian's iptables and ipset. The
//     driver's chart then creates its NetworkPolicy in all tests. Pods see the API server at its
//     Service's address, because nothing translates that address.
//
// The tests use only the chart, the manifests, kubectl and the target's state. They must not import
// the driver or the proxy.
package e2e
