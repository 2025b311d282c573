// Package e2e tests the driver on a real Kubernetes. Run it as root with
//
//	make test-k8s
//	make test-k8s ARGS="-run TestSnapshots"  # chosen tests
//	make test-k8s ARGS=-upstream             # also Kubernetes' own tests of storage drivers: see the tests TestUpstream*
//	make test-k8s ARGS="-upstream -populator=DIR" # with the one that needs programs which the tests do not build
//	make test-k8s ARGS=-network-policies=PATH # with the charts' NetworkPolicies enforced by the program kube-router
//	make test-k8s ARGS="-run TestChurn -churn 30" # volumes come and go while the driver's processes are killed
//	make test-k8s ARGS=-keep                 # the cluster stays until Ctrl-C; go test itself needs -timeout 0 for that
//	make test-k8s ARGS=-logs=DIR             # all logs, also of pods, in DIR
//
// The first run builds Kubernetes and the CSI sidecars from the module graph in kubernetes/go.mod,
// and csi-snapshot-metadata from that in snapshotmetadata/go.mod, whose dependencies are newer. All
// go into a directory of the user's cache. Debian packages (containerd, runc, CNI plugins and what
// they need) are unpacked there, and not installed. Later runs build only the driver's images, the
// proxy and the example programs of csi-snapshot-metadata.
//
// A run has two processes. The outer one builds, starts the inner one in namespaces of its own
// (package sandbox), and cleans up when that has ended, for whatever reason. The inner one starts
// the storage server (package storage) and the cluster (package cluster), and runs the tests.
// Nothing is stopped inside: with the first process of the sandbox, the kernel ends all others.
//
// The driver runs as the pods of the Helm chart deploy/helm/spdk-csi with self-registration, from
// images that deploy/image builds. Values set the configuration and the credentials, and let the
// nodes attach the simulated target's volumes as loop devices. Differences from a real
// installation:
//   - The storage is simulated, with real data in files; loop devices replace NVMe/TCP
//     (test/suites/kernel has that).
//   - The target's device contains the metadata of the lvstore as SPDK writes them, and its
//     snapshots own the clusters whose bytes differ from those of the snapshot below: clusters that
//     were written with the bytes that they had are not among them.
//   - Sidecar images are built from the module graph. livenessprobe is a stand-in (its module is
//     not on the module proxy), and node-driver-registrar is not tested.
//   - The two nodes share a kernel: a node that loses its power takes neither a kernel's state nor
//     a disk's cache with it, but its processes, mounts and what its volumes' file systems have not
//     written. There is no kube-proxy and no DNS: the tests of
//     csi-snapshot-metadata serve its Service and its name themselves.
//   - NetworkPolicies are enforced only with -network-policies and the path of kube-router, v2.11
//     or later, which the tests do not build: not all that it needs is on the module proxy. It runs
//     beside kubelet, as controller of policies alone, with Debian's iptables and ipset, and the
//     driver's chart then has its NetworkPolicy in all tests. Pods see the API server at the
//     address of its Service, as there is nothing that translates it.
//
// The tests may know the chart, the manifests, kubectl and the target's state. They may not import
// the driver or the proxy.
package e2e
