package deploy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// The Job can attach volumes, as the node plugin does, and call targets, as the controller does.
func TestMoveJobCanAttachVolumesAndCallTargets(t *testing.T) {
	spec := find[*batchv1.Job](t, manifests(t, "kubernetes/move"), "spdkcsi-move").Spec.Template.Spec
	node := find[*appsv1.DaemonSet](t, plain(t), "spdkcsi-node").Spec.Template.Spec
	controller := find[*appsv1.Deployment](t, plain(t), "spdkcsi-controller").Spec.Template.Spec
	job := spec.Containers[0]
	assert.Equal(t, node.Containers[0].Image, job.Image)
	assert.Equal(t, node.Containers[0].SecurityContext, job.SecurityContext)
	assert.Equal(t, node.HostNetwork, spec.HostNetwork)
	assert.Equal(t, node.DNSPolicy, spec.DNSPolicy)
	for _, of := range []struct {
		from   corev1.PodSpec
		mounts []string
	}{
		{node, []string{"/dev", "/sys", "/lib/modules", "/host/proc", "/run", "/tmp"}},
		{controller, []string{"/etc/spdkcsi-config", "/etc/spdkcsi-secret", "/etc/spdkcsi-ca"}},
	} {
		for _, path := range of.mounts {
			assert.Equal(t, mountAt(of.from, path), mountAt(spec, path), path)
			assert.NotNil(t, mountAt(spec, path).source, path)
		}
	}
	assert.Equal(t, []string{"move", "--pv=/move/old.json", "--parameter=target=storage-2"}, job.Args, "docs/moving.md replaces the last")
}

type mounted struct {
	readOnly bool
	source   *corev1.VolumeSource
}

// mountAt returns the volume that the first container mounts at a path.
func mountAt(p corev1.PodSpec, path string) (m mounted) {
	for _, mount := range p.Containers[0].VolumeMounts {
		if mount.MountPath != path {
			continue
		}
		m.readOnly = mount.ReadOnly
		for _, v := range p.Volumes {
			if v.Name == mount.Name {
				m.source = &v.VolumeSource
			}
		}
	}
	return m
}
