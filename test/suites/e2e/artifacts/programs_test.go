package artifacts

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestProgramIsNamedAfterItsPackage(t *testing.T) {
	for pkg, want := range map[string]string{
		"go.etcd.io/etcd/server/v3":                                             "etcd",
		"k8s.io/kubernetes/cmd/kube-apiserver":                                  "kube-apiserver",
		"github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner": "csi-provisioner",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter": "csi-snapshotter",
		"example.com/tool/v2":                                                   "tool",
	} {
		assert.Equal(t, want, programOf(pkg))
	}
}

// Without these linker flags, `kubectl version` and the node's status report v0.0.0.
func TestFlagsSetTheVersion(t *testing.T) {
	flags := tool{"kubelet", "k8s.io/kubernetes/cmd/kubelet", "v1.36.3"}.flags()
	for _, want := range []string{"version.gitVersion=v1.36.3", "version.gitMajor=1", "version.gitMinor=36"} {
		assert.Contains(t, flags, want)
	}
	assert.Equal(t, "-s -w -X main.version=v6.3.0", tool{"csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "v6.3.0"}.flags())
}
