package deploy

import (
	"slices"
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

// DeepCopyObject makes SnapshotMetadataService a Kubernetes object.
func (s *SnapshotMetadataService) DeepCopyObject() runtime.Object {
	c := *s
	return &c
}

func addSnapshotMetadata(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schema.GroupVersion{Group: "cbt.storage.k8s.io", Version: "v1beta1"}, &SnapshotMetadataService{})
	return nil
}

// The Deployment's certificate, port, audience and permissions are consistent. The Deployment does
// not change the controller.
func TestSnapshotMetadataManifestsAreConsistent(t *testing.T) {
	without := find[*appsv1.Deployment](t, plain(t), "spdkcsi-controller")
	for name, objects := range map[string][]object{
		"manifests": func() []object { o, _ := kustomize(t, "snapshot-metadata"); return o }(),
		"chart":     rendered(t, map[string]any{"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "an authority"}}),
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, len(without.Spec.Template.Spec.Containers), len(find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec.Containers))
			deployment := find[*appsv1.Deployment](t, objects, metadataName)
			pod := deployment.Spec.Template.Spec
			checkReferences(t, metadataName, pod)
			require.Len(t, pod.Containers, 2)
			d, c := pod.Containers[0], pod.Containers[1]
			assert.Equal(t, without.Spec.Template.Spec.Containers[0].Image, d.Image)
			assert.Equal(t, []string{"--snapshot-metadata", "--endpoint=unix:///csi/csi.sock"}, d.Args)
			assert.Equal(t, "/csi/csi.sock", arg(c, "--csi-address"))
			assert.True(t, *pod.SecurityContext.RunAsNonRoot)
			for _, each := range pod.Containers {
				assert.True(t, *each.SecurityContext.ReadOnlyRootFilesystem, each.Name)
				assert.False(t, *each.SecurityContext.AllowPrivilegeEscalation, each.Name)
			}
			for _, path := range []string{"/etc/spdkcsi-config", "/etc/spdkcsi-secret", "/etc/spdkcsi-ca"} {
				assert.Equal(t, mountAt(without.Spec.Template.Spec, path).source, mountAt(pod, path).source, "as in the controller")
			}
			tls := mountAt(corev1.PodSpec{Containers: []corev1.Container{c}, Volumes: pod.Volumes}, "/etc/spdkcsi-snapshot-metadata")
			assert.Equal(t, metadataName+"-tls", tls.source.Secret.SecretName)
			assert.Nil(t, tls.source.Secret.Optional, "without the Secret, the pod waits")
			assert.Equal(t, "/etc/spdkcsi-snapshot-metadata/tls.crt", arg(c, "--tls-cert"))
			assert.Equal(t, "/etc/spdkcsi-snapshot-metadata/tls.key", arg(c, "--tls-key"))

			service := find[*corev1.Service](t, objects, metadataName)
			assert.Equal(t, deployment.Spec.Template.Labels, service.Spec.Selector)
			assert.Equal(t, deployment.Spec.Template.Labels, deployment.Spec.Selector.MatchLabels)
			assert.Equal(t, "snap-metadata", service.Spec.Ports[0].TargetPort.String())
			assert.Contains(t, c.Ports, corev1.ContainerPort{Name: "snap-metadata", ContainerPort: 50051})
			assert.Equal(t, "50051", arg(c, "--port"))

			object := find[*SnapshotMetadataService](t, objects, driverName)
			assert.Equal(t, metadataName+"."+namespace+":6443", object.Spec.Address)
			assert.EqualValues(t, 6443, service.Spec.Ports[0].Port)
			assert.Equal(t, object.Spec.Audience, arg(c, "--audience"), "a token for another audience is refused")
			assert.NotEmpty(t, object.Spec.CACert)

			assert.Equal(t, metadataName+"-sa", pod.ServiceAccountName)
			find[*corev1.ServiceAccount](t, objects, pod.ServiceAccountName)
			assert.Equal(t, map[string]string{
				"authentication.k8s.io/tokenreviews": "create", "authorization.k8s.io/subjectaccessreviews": "create",
				"snapshot.storage.k8s.io/volumesnapshots": "get", "snapshot.storage.k8s.io/volumesnapshotcontents": "get",
				"snapshot.storage.k8s.io/volumesnapshotclasses":                   "get list",
				"cbt.storage.k8s.io/snapshotmetadataservices named " + driverName: "get",
			}, flatten(t, find[*rbacv1.ClusterRole](t, objects, metadataName+"-role").Rules))
			assert.Equal(t, map[string]string{"secrets named spdkcsi-secret": "get"}, flatten(t, find[*rbacv1.Role](t, objects, metadataName+"-role").Rules))
			subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: namespace}}
			assert.Equal(t, subjects, find[*rbacv1.ClusterRoleBinding](t, objects, metadataName+"-binding").Subjects)
			assert.Equal(t, subjects, find[*rbacv1.RoleBinding](t, objects, metadataName+"-binding").Subjects)
		})
	}
}

// If the controller uses a token instead of passwords, so does the Deployment, regardless of the
// order of the components.
func TestSnapshotMetadataUsesTheControllersCredentials(t *testing.T) {
	first, _ := kustomize(t, "service-account-token", "snapshot-metadata")
	last, _ := kustomize(t, "snapshot-metadata", "service-account-token")
	for name, objects := range map[string][]object{
		"token first": first, "token last": last,
		"chart": rendered(t, map[string]any{"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "x"}, "credentials": map[string]any{"serviceAccountToken": true}}),
	} {
		pod := find[*appsv1.Deployment](t, objects, metadataName).Spec.Template.Spec
		source := mountAt(pod, "/etc/spdkcsi-secret").source
		require.NotNil(t, source.Projected, name)
		assert.Equal(t, mountAt(find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec, "/etc/spdkcsi-secret").source, source, name)
		assert.Equal(t, "spdk-proxy", source.Projected.Sources[1].ServiceAccountToken.Audience, name)
	}
}

// Without the chart's option for snapshot metadata, none of its objects exist; with the option,
// callers may connect.
func TestSnapshotMetadataIsOptional(t *testing.T) {
	for _, o := range rendered(t, nil) {
		assert.NotContains(t, o.meta.GetName(), metadataName)
	}
	objects := rendered(t, map[string]any{
		"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "an authority"}, "networkPolicy": map[string]any{"create": true},
	})
	controller := find[*networkingv1.NetworkPolicy](t, objects, "spdkcsi-controller")
	require.Len(t, controller.Spec.Ingress, 1, "metrics")
	policy := find[*networkingv1.NetworkPolicy](t, objects, metadataName)
	assert.Equal(t, find[*appsv1.Deployment](t, objects, metadataName).Spec.Template.Labels, policy.Spec.PodSelector.MatchLabels)
	require.Len(t, policy.Spec.Ingress, 1)
	assert.Equal(t, "snap-metadata", rules(policy.Spec.Ingress[0].From, policy.Spec.Ingress[0].Ports))
	assert.Equal(t, controller.Spec.Egress, policy.Spec.Egress)
	assert.Equal(t, controller.Spec.PolicyTypes, policy.Spec.PolicyTypes)
}

// The Deployment is allowed to read the Secrets that classes name.
func TestSnapshotMetadataReadsClassSecrets(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		objects := rendered(t, map[string]any{
			"snapshotMetadata": map[string]any{"enabled": enabled, "caCertificate": "an authority"}, "classSecrets": []any{map[string]any{"name": "keys"}},
		})
		names := []string{}
		for _, s := range find[*rbacv1.RoleBinding](t, objects, "spdkcsi-secret-keys").Subjects {
			names = append(names, s.Name)
		}
		assert.Equal(t, enabled, slices.Contains(names, metadataName+"-sa"))
	}
}
