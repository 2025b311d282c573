package deploy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const metadataName = "spdkcsi-snapshot-metadata"

// SnapshotMetadataService is the object in cbt.storage.k8s.io/v1beta1, as described by its CRD.
type SnapshotMetadataService struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Address  string `json:"address"`
		Audience string `json:"audience"`
		CACert   []byte `json:"caCert"`
	} `json:"spec"`
}

// DeepCopyObject makes it a Kubernetes object.
func (s *SnapshotMetadataService) DeepCopyObject() runtime.Object {
	c := *s
	return &c
}

func addSnapshotMetadata(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schema.GroupVersion{Group: "cbt.storage.k8s.io", Version: "v1beta1"}, &SnapshotMetadataService{})
	return nil
}

// The sidecar's certificate, port, audience and permissions are consistent.
func TestSnapshotMetadata(t *testing.T) {
	for name, objects := range map[string][]object{
		"manifests": func() []object { o, _ := kustomize(t, "snapshot-metadata"); return o }(),
		"chart":     rendered(t, map[string]any{"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "an authority"}}),
	} {
		t.Run(name, func(t *testing.T) {
			deployment := find[*appsv1.Deployment](t, objects, "spdkcsi-controller")
			pod := deployment.Spec.Template.Spec
			checkReferences(t, "spdkcsi-controller", pod)
			var c corev1.Container
			for _, each := range pod.Containers {
				if each.Name == metadataName {
					c = each
				}
			}
			require.NotEmpty(t, c.Name)
			tls := mountAt(corev1.PodSpec{Containers: []corev1.Container{c}, Volumes: pod.Volumes}, "/etc/spdkcsi-snapshot-metadata")
			assert.Equal(t, metadataName+"-tls", tls.source.Secret.SecretName)
			assert.True(t, *tls.source.Secret.Optional, "without the Secret, the driver still starts")
			assert.Equal(t, "/etc/spdkcsi-snapshot-metadata/tls.crt", arg(c, "--tls-cert"))
			assert.Equal(t, "/etc/spdkcsi-snapshot-metadata/tls.key", arg(c, "--tls-key"))

			service := find[*corev1.Service](t, objects, metadataName)
			assert.Equal(t, deployment.Spec.Template.Labels, service.Spec.Selector)
			assert.Equal(t, "snap-metadata", service.Spec.Ports[0].TargetPort.String())
			assert.Contains(t, c.Ports, corev1.ContainerPort{Name: "snap-metadata", ContainerPort: 50051})
			assert.Equal(t, "50051", arg(c, "--port"))

			object := find[*SnapshotMetadataService](t, objects, driverName)
			assert.Equal(t, metadataName+"."+namespace+":6443", object.Spec.Address)
			assert.EqualValues(t, 6443, service.Spec.Ports[0].Port)
			assert.Equal(t, object.Spec.Audience, arg(c, "--audience"), "a token for another audience is refused")
			assert.NotEmpty(t, object.Spec.CACert)

			assert.Equal(t, map[string]string{
				"authentication.k8s.io/tokenreviews": "create", "authorization.k8s.io/subjectaccessreviews": "create",
				"snapshot.storage.k8s.io/volumesnapshots": "get", "snapshot.storage.k8s.io/volumesnapshotcontents": "get",
				"cbt.storage.k8s.io/snapshotmetadataservices named " + driverName: "get",
			}, flatten(t, find[*rbacv1.ClusterRole](t, objects, metadataName+"-role").Rules))
			assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: namespace}}, find[*rbacv1.ClusterRoleBinding](t, objects, metadataName+"-binding").Subjects)
		})
	}
}

// Without the option, none of its objects exist; with it, callers may connect.
func TestSnapshotMetadataIsOptional(t *testing.T) {
	for _, o := range rendered(t, nil) {
		assert.NotContains(t, o.meta.GetName(), metadataName)
	}
	policy := find[*networkingv1.NetworkPolicy](t, rendered(t, map[string]any{
		"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "an authority"}, "networkPolicy": map[string]any{"create": true},
	}), "spdkcsi-controller")
	require.Len(t, policy.Spec.Ingress, 2)
	assert.Equal(t, "snap-metadata", rules(policy.Spec.Ingress[1].From, policy.Spec.Ingress[1].Ports))
}
