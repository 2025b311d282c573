package deploy

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
)

const replicationFolder = "kubernetes/components/replication"

// The controller and the node plugin have only the permissions that driver/witness needs. A node
// plugin cannot create, publish or delete a witness. Neither the controller nor a node plugin can
// list witnesses.
func TestReplicationRolesAreMinimal(t *testing.T) {
	const file = replicationFolder + "/rbac.yaml"
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	objects, err := decode(file, source)
	require.NoError(t, err)
	require.Len(t, objects, 4)
	for who, verbs := range map[string]string{"controller": "get create update delete", "node": "get"} {
		role := find[*rbacv1.ClusterRole](t, objects, "spdkcsi-replication-"+who+"-role")
		assert.Equal(t, map[string]string{"spdkgate.io/replicatedvolumes": verbs, "spdkgate.io/replicatedvolumes/status": "update"}, flatten(t, role.Rules))
		binding := find[*rbacv1.ClusterRoleBinding](t, objects, "spdkcsi-replication-"+who+"-binding")
		assert.Equal(t, rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role.Name}, binding.RoleRef)
		assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "spdkcsi-" + who + "-sa", Namespace: namespace}}, binding.Subjects)
	}
}

// A default installation does not include the resource definition of witnesses.
func TestReplicationIsNotInstalledByDefault(t *testing.T) {
	for _, o := range plain(t) {
		assert.NotContains(t, o.meta.GetName(), "replication")
		assert.NotContains(t, o.meta.GetName(), "replicatedvolumes")
	}
	for _, c := range append(daemonSet(t, plain(t)).Spec.Template.Spec.Containers, find[*appsv1.Deployment](t, plain(t), "spdkcsi-controller").Spec.Template.Spec.Containers...) {
		assert.NotContains(t, c.Args, "--replication")
	}
}

// With the replication component, the controller and the node plugin use witnesses. On a node, only
// the driver's container contains the token. The controller has its own Secret, which csi-attacher
// uses to publish volumes again. Uninstalling the chart does not delete witnesses.
func TestReplicationComponentMountsTheToken(t *testing.T) {
	objects, _ := kustomize(t, "replication")
	pod := daemonSet(t, objects).Spec.Template.Spec
	controllerPod := find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec
	for _, p := range []corev1.PodSpec{pod, controllerPod} {
		assert.Contains(t, p.Containers[0].Args, "--replication")
		accepts(t, p.Containers[0])
		checkReferences(t, p.Containers[0].Name, p)
	}
	assert.False(t, *pod.AutomountServiceAccountToken)
	for i, c := range pod.Containers {
		has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == kubernetes.ServiceAccountDir })
		assert.Equal(t, i == 0, has, c.Name)
	}
	assert.True(t, slices.ContainsFunc(controllerPod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/spdkcsi-secret" }))
	definition := find[*unstructured.Unstructured](t, objects, "replicatedvolumes.spdkgate.io")
	assert.Equal(t, "keep", definition.GetAnnotations()["helm.sh/resource-policy"])
	find[*admissionv1.ValidatingAdmissionPolicy](t, objects, "spdkcsi-node-witness")
	binding := find[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, "spdkcsi-node-witness")
	assert.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, binding.Spec.ValidationActions)
}

// addDefinitions adds CustomResourceDefinition to a scheme. The tests in admission and
// driver/witness check its fields.
func addDefinitions(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, &unstructured.Unstructured{})
	return nil
}
