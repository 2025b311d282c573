package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const groupFolder = "kubernetes/components/group-snapshots"

func TestGroupSnapshotClassIsAccepted(t *testing.T) {
	c := find[*groupsnapshotv1.VolumeGroupSnapshotClass](t, manifests(t, groupFolder), "spdkcsi-groupsnapclass")
	assert.Equal(t, driverName, c.Driver)
	assert.Equal(t, snapshotv1.VolumeSnapshotContentDelete, c.DeletionPolicy)
	source, err := os.ReadFile("../driver/controller/group.go")
	require.NoError(t, err)
	var asked []string
	for _, m := range regexp.MustCompile(`"`+prefix+`([a-z-]+)-secret"`).FindAllStringSubmatch(string(source), -1) {
		asked = append(asked, m[1])
		for key, want := range map[string]string{"name": "spdkcsi-secret", "namespace": namespace} {
			assert.Equal(t, want, c.Parameters[prefix+m[1]+"-secret-"+key], "the driver's messages name this parameter")
		}
	}
	assert.Len(t, asked, 2)
	assert.Len(t, c.Parameters, 4)
}

// The component grants the sidecar only the permissions that group snapshots need. Without the
// component, the sidecar does not have these permissions.
func TestGroupSnapshotRoleIsMinimal(t *testing.T) {
	objects := manifests(t, groupFolder)
	role := find[*rbacv1.ClusterRole](t, objects, "spdkcsi-group-snapshotter-role")
	const group = "groupsnapshot.storage.k8s.io/volumegroupsnapshot"
	assert.Equal(t, map[string]string{
		group + "classes": "get list watch", group + "contents": "get list watch update patch", group + "contents/status": "update patch",
	}, flatten(t, role.Rules))
	binding := find[*rbacv1.ClusterRoleBinding](t, objects, "spdkcsi-group-snapshotter-binding")
	assert.Equal(t, role.Name, binding.RoleRef.Name)
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "spdkcsi-controller-sa", Namespace: namespace}}, binding.Subjects)
}

// The patch enables the feature in csi-snapshotter. If the CRDs were missing, csi-snapshotter would
// then not take any snapshots at all, so the plain manifests do not enable the feature.
func TestGroupSnapshotPatchEnablesTheFeature(t *testing.T) {
	source, err := os.ReadFile(groupFolder + "/kustomization.yaml")
	require.NoError(t, err)
	var k struct {
		Resources []string
		Patches   []struct {
			Target struct{ Kind, Name string }
			Patch  string
		}
	}
	require.NoError(t, yaml.Unmarshal(source, &k))
	assert.Equal(t, []string{"groupsnapshotclass.yaml", "rbac.yaml"}, k.Resources)
	require.Len(t, k.Patches, 1)
	assert.Equal(t, "Deployment", k.Patches[0].Target.Kind)
	containers := find[*appsv1.Deployment](t, plain(t), k.Patches[0].Target.Name).Spec.Template.Spec.Containers
	var steps []struct{ Op, Path, Value string }
	require.NoError(t, yaml.Unmarshal([]byte(k.Patches[0].Patch), &steps))
	require.Len(t, steps, 2)
	require.Equal(t, "/spec/template/spec/containers/4/name", steps[0].Path)
	assert.Equal(t, containers[4].Name, steps[0].Value)
	assert.Contains(t, containers[4].Image, "csi-snapshotter")
	assert.Equal(t, "/spec/template/spec/containers/4/args/-", steps[1].Path)
	assert.Equal(t, "--feature-gates=CSIVolumeGroupSnapshot=true", steps[1].Value)
	for _, c := range containers {
		assert.NotContains(t, strings.Join(c.Args, " "), "CSIVolumeGroupSnapshot")
	}
}
