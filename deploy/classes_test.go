package deploy

import (
	"os"
	"regexp"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const (
	storageClass  = "spdkcsi-sc"
	snapshotClass = "spdkcsi-snapclass"
	prefix        = "csi.storage.k8s.io/"
)

func TestCSIDriverObjectMatchesTheDriver(t *testing.T) {
	d := find[*storagev1.CSIDriver](t, plain(t), driverName)
	assert.True(t, *d.Spec.AttachRequired, "volumes are exported to the node that uses them, so they have to be attached")
	assert.False(t, *d.Spec.PodInfoOnMount)
	assert.False(t, *d.Spec.StorageCapacity, "without topology csi-provisioner publishes no capacity, and no pod would be scheduled")
	assert.Equal(t, storagev1.FileFSGroupPolicy, *d.Spec.FSGroupPolicy)
	assert.Equal(t, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}, d.Spec.VolumeLifecycleModes)
}

func TestStorageClassIsAccepted(t *testing.T) {
	c := find[*storagev1.StorageClass](t, plain(t), storageClass)
	assert.Equal(t, driverName, c.Provisioner)
	require.NotNil(t, c.AllowVolumeExpansion)
	assert.True(t, *c.AllowVolumeExpansion)
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, *c.ReclaimPolicy)
	assert.Equal(t, storagev1.VolumeBindingImmediate, *c.VolumeBindingMode)
	assert.Equal(t, "ext4", c.Parameters[prefix+"fstype"])
	// Only controller calls receive Secrets, because nodes never call the proxy.
	assert.Equal(t, []string{"controller-expand", "controller-publish", "provisioner"}, secretPurposes(t, c.Parameters))
}

func TestSnapshotClassIsAccepted(t *testing.T) {
	c := find[*snapshotv1.VolumeSnapshotClass](t, plain(t), snapshotClass)
	assert.Equal(t, driverName, c.Driver)
	assert.Equal(t, snapshotv1.VolumeSnapshotContentDelete, c.DeletionPolicy)
	assert.Equal(t, []string{"snapshotter", "snapshotter-list"}, secretPurposes(t, c.Parameters))
}

// secretPurposes returns the calls for which the parameters name a Secret, in sorted order. The
// sidecars refuse all other keys with their prefix.
func secretPurposes(t *testing.T, parameters map[string]string) []string {
	known := []string{"controller-expand", "controller-publish", "provisioner", "snapshotter", "snapshotter-list"}
	var purposes []string
	left := len(parameters)
	for _, p := range known {
		name, namespace := parameters[prefix+p+"-secret-name"], parameters[prefix+p+"-secret-namespace"]
		assert.Equal(t, name == "", namespace == "", "%s: name and namespace go together", p)
		if name != "" {
			purposes = append(purposes, p)
			left -= 2
		}
	}
	for key := range parameters {
		if !strings.HasPrefix(key, prefix) || key == prefix+"fstype" {
			left--
		}
	}
	assert.Zero(t, left, "unknown parameters of Kubernetes in %v", parameters)
	return purposes
}

// The classes name Secrets for exactly the calls that need a Secret. The driver's messages tell
// users to set these parameters.
func TestClassesNameTheSecretsNeededByTheDriver(t *testing.T) {
	source, err := os.ReadFile("../driver/controller/controller.go")
	require.NoError(t, err)
	var asked []string
	for _, m := range regexp.MustCompile(`"`+prefix+`([a-z-]+)-secret"`).FindAllStringSubmatch(string(source), -1) {
		asked = append(asked, m[1])
	}
	named := secretPurposes(t, find[*storagev1.StorageClass](t, plain(t), storageClass).Parameters)
	named = append(named, secretPurposes(t, find[*snapshotv1.VolumeSnapshotClass](t, plain(t), snapshotClass).Parameters)...)
	assert.ElementsMatch(t, asked, named)
}

// namedSecrets returns all references to Secrets in the manifests and examples, by location.
func namedSecrets(t *testing.T) map[string]corev1.SecretReference {
	named := map[string]corev1.SecretReference{}
	classes := map[string]map[string]string{
		storageClass:  find[*storagev1.StorageClass](t, plain(t), storageClass).Parameters,
		snapshotClass: find[*snapshotv1.VolumeSnapshotClass](t, plain(t), snapshotClass).Parameters,
	}
	for class, parameters := range classes {
		for _, p := range secretPurposes(t, parameters) {
			named[class+" "+p] = corev1.SecretReference{Name: parameters[prefix+p+"-secret-name"], Namespace: parameters[prefix+p+"-secret-namespace"]}
		}
	}
	for _, o := range examples(t) {
		if pv, ok := o.Object.(*corev1.PersistentVolume); ok {
			for call, ref := range map[string]*corev1.SecretReference{"publish": pv.Spec.CSI.ControllerPublishSecretRef, "expand": pv.Spec.CSI.ControllerExpandSecretRef} {
				if assert.NotNil(t, ref, "%v: %s", o, call) {
					named[pv.Name+" "+call] = *ref
				}
			}
		}
	}
	return named
}

// Examples refer only to the classes in the manifests and to each other.
func TestExamplesReferToExistingObjects(t *testing.T) {
	all := examples(t)
	for _, o := range all {
		switch v := o.Object.(type) {
		case *corev1.PersistentVolumeClaim:
			assert.Equal(t, storageClass, *v.Spec.StorageClassName, o)
			if s := v.Spec.DataSource; s != nil && s.Kind == "VolumeSnapshot" {
				snapshot := find[*snapshotv1.VolumeSnapshot](t, all, s.Name)
				source := find[*corev1.PersistentVolumeClaim](t, all, *snapshot.Spec.Source.PersistentVolumeClaimName)
				assert.GreaterOrEqual(t, v.Spec.Resources.Requests.Storage().Cmp(*source.Spec.Resources.Requests.Storage()), 0, o)
			} else if s != nil {
				find[*corev1.PersistentVolumeClaim](t, all, s.Name)
			}
			if name := v.Spec.VolumeName; name != "" {
				pv := find[*corev1.PersistentVolume](t, all, name)
				assert.Equal(t, v.Name, pv.Spec.ClaimRef.Name)
				assert.Equal(t, v.Spec.Resources.Requests.Storage().String(), pv.Spec.Capacity.Storage().String())
			}
		case *snapshotv1.VolumeSnapshot:
			assert.Equal(t, snapshotClass, *v.Spec.VolumeSnapshotClassName, o)
			find[*corev1.PersistentVolumeClaim](t, all, *v.Spec.Source.PersistentVolumeClaimName)
		case *corev1.PersistentVolume:
			assert.Equal(t, driverName, v.Spec.CSI.Driver)
			assert.Equal(t, storageClass, v.Spec.StorageClassName)
			assert.Equal(t, corev1.PersistentVolumeReclaimRetain, v.Spec.PersistentVolumeReclaimPolicy, "a volume that was created by hand must not be deleted automatically")
		case *corev1.Pod:
			assert.Contains(t, strings.Join(v.Spec.Containers[0].Command, " "), "trap exit TERM", "process 1 ignores SIGTERM by default, so the pod would take 30 s to end")
			claim := find[*corev1.PersistentVolumeClaim](t, all, v.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
			block := claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
			assert.Equal(t, block, len(v.Spec.Containers[0].VolumeDevices) == 1, o)
			assert.Equal(t, !block, len(v.Spec.Containers[0].VolumeMounts) == 1, o)
		case *corev1.ServiceAccount, *rbacv1.Role, *rbacv1.ClusterRole:
		case *rbacv1.RoleBinding:
			find[*rbacv1.Role](t, all, v.RoleRef.Name)
			find[*corev1.ServiceAccount](t, all, v.Subjects[0].Name)
		case *rbacv1.ClusterRoleBinding:
			find[*rbacv1.ClusterRole](t, all, v.RoleRef.Name)
			find[*corev1.ServiceAccount](t, all, v.Subjects[0].Name)
		default:
			t.Errorf("%v: what is it an example of?", o)
		}
	}
}

// sidecarFlags lists the flags of each sidecar, copied from the source code of the deployed
// version. Check the list again whenever a deployed version changes.
var sidecarFlags = map[string]string{
	"csi-provisioner:v6.3.0":            "v csi-address timeout retry-interval-start retry-interval-max kube-api-qps kube-api-burst default-fstype extra-create-metadata leader-election feature-gates http-endpoint",
	"csi-attacher:v4.12.0":              "v csi-address timeout retry-interval-start retry-interval-max kube-api-qps kube-api-burst worker-threads max-entries default-fstype leader-election feature-gates http-endpoint",
	"csi-resizer:v2.2.0":                "v csi-address timeout retry-interval-start retry-interval-max kube-api-qps kube-api-burst handle-volume-inuse-error leader-election feature-gates http-endpoint",
	"csi-snapshotter:v8.6.0":            "v csi-address timeout retry-interval-start retry-interval-max kube-api-qps kube-api-burst leader-election feature-gates http-endpoint",
	"csi-node-driver-registrar:v2.17.0": "v csi-address kubelet-registration-path",
	"livenessprobe:v2.19.0":             "v csi-address http-endpoint probe-timeout",
}

func TestSidecarFlagsExist(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range workloads(t) {
		for _, c := range w.pod.Containers {
			image, ok := strings.CutPrefix(c.Image, "registry.k8s.io/sig-storage/")
			if !ok {
				continue
			}
			require.Contains(t, sidecarFlags, image, "add the flags of this sidecar")
			seen[image] = true
			for _, a := range c.Args {
				flag, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
				assert.Contains(t, strings.Fields(sidecarFlags[image]), flag, image)
			}
		}
	}
	assert.Len(t, seen, len(sidecarFlags), "every sidecar is deployed")
}
