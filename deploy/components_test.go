package deploy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// components lists the options in kubernetes/components. A cluster can use at most one of the
// options in the last group.
var (
	anyComponents = []string{"class-secrets", "group-snapshots", "node-lifecycle", "replication", "self-registration", "service-account-token", "snapshot-metadata", "storage-capacity", "zones"}
	kubeletRoots  = map[string]string{"kubelet-root/k0s": "/var/lib/k0s/kubelet", "kubelet-root/microk8s": "/var/snap/microk8s/common/var/lib/kubelet"}
)

// kustomize renders the manifests with components, in the given order, as a user's kustomization
// does. It returns the objects and the rendered text.
func kustomize(t *testing.T, components ...string) (objects []object, text string) {
	t.Helper()
	program, err := builds["kustomize"]()
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(folder, "kubernetes"), os.DirFS("kubernetes")))
	var listed []string
	for _, c := range components {
		listed = append(listed, "../kubernetes/components/"+c)
	}
	file, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []string{"../kubernetes"}, "components": listed,
	})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "mine"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "mine", "kustomization.yaml"), file, 0o600))
	cmd := exec.Command(program, "build", filepath.Join(folder, "mine"))
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		require.FailNow(t, "kustomize build", "%v: %s", components, exit.Stderr)
	}
	require.NoError(t, err)
	objects, err = decode(fmt.Sprint(components), out)
	require.NoError(t, err, "%v", components)
	return objects, string(out)
}

func daemonSet(t *testing.T, objects []object) *appsv1.DaemonSet {
	return find[*appsv1.DaemonSet](t, objects, "spdkcsi-node")
}

// TestComponentsAreListed compares the component directories with the comments in
// kustomization.yaml and with the list in this test.
func TestComponentsAreListed(t *testing.T) {
	files, err := filepath.Glob("kubernetes/components/*/kustomization.yaml")
	require.NoError(t, err)
	roots, err := filepath.Glob("kubernetes/components/*/*/kustomization.yaml")
	require.NoError(t, err)
	source, err := os.ReadFile("kubernetes/kustomization.yaml")
	require.NoError(t, err)
	var there []string
	for _, f := range slices.Concat(files, roots) {
		name := strings.TrimPrefix(filepath.Dir(f), "kubernetes/components/")
		there = append(there, name)
		assert.Contains(t, string(source), "# - components/"+name, "say what it is in the list of options")
	}
	assert.ElementsMatch(t, slices.Concat(anyComponents, slices.Collect(maps.Keys(kubeletRoots))), there)
}

// Without options, the rendered manifests are the same as those in the files.
func TestManifestsWithoutComponentsAreUnchanged(t *testing.T) {
	rendered, _ := kustomize(t)
	want := plain(t)
	require.Len(t, rendered, len(want))
	for _, o := range want {
		i := slices.IndexFunc(rendered, func(r object) bool { return r.kind() == o.kind() && r.meta.GetName() == o.meta.GetName() })
		require.GreaterOrEqual(t, i, 0, "%v", o)
		assert.Equal(t, o.Object, rendered[i].Object, "%v", o)
	}
}

// All options together, in both orders and with each kubelet root, result in valid objects,
// consistent pods and arguments that the program accepts. The order makes no difference to the
// result.
func TestComponentsCanBeCombined(t *testing.T) {
	for root, path := range kubeletRoots {
		t.Run(root, func(t *testing.T) {
			names := append(slices.Clone(anyComponents), root)
			objects, _ := kustomize(t, names...)
			slices.Reverse(names)
			reversed, _ := kustomize(t, names...)
			require.Len(t, reversed, len(objects))
			for _, of := range [][]object{objects, reversed} {
				pod := daemonSet(t, of).Spec.Template.Spec
				checkReferences(t, "spdkcsi-node", pod)
				checkReferences(t, "spdkcsi-controller", find[*appsv1.Deployment](t, of, "spdkcsi-controller").Spec.Template.Spec)
				assert.Equal(t, path, environment(pod.Containers[0])["KUBELET_ROOT"])
				assert.Contains(t, environment(pod.Containers[0]), "ZONE")
				assert.Equal(t, "/usr/local/bin/spdk-csi drain-hook", strings.Join(pod.Containers[0].Lifecycle.PreStop.Exec.Command, " "))
				snapshotter := find[*appsv1.Deployment](t, of, "spdkcsi-controller").Spec.Template.Spec.Containers[4]
				assert.Equal(t, []string{"ReleaseLeaderElectionOnExit=true", "CSIVolumeGroupSnapshot=true"}, argValues(snapshotter, "--feature-gates"), "the sidecar adds them up")
			}
		})
	}
}

// environment returns a container's environment variables. Variables without a literal value are
// empty.
func environment(c corev1.Container) map[string]string {
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
	}
	return values
}

// argValues returns all values of a repeated flag.
func argValues(c corev1.Container, flag string) (values []string) {
	for _, a := range c.Args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			values = append(values, value)
		}
	}
	return values
}

// accepts runs the program with --help and a container's arguments, which it expands as Kubernetes
// does.
func accepts(t *testing.T, c corev1.Container) {
	t.Helper()
	values := environment(c)
	var args []string
	for _, a := range c.Args {
		for name, value := range values {
			a = strings.ReplaceAll(a, "$("+name+")", value)
		}
		require.NotContains(t, a, "$(", "a variable that the container does not have")
		args = append(args, a)
	}
	out, err := exec.Command(binary(t, "spdk-csi"), append(args, "--help")...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
}

func TestSelfRegistrationReplacesTheRegistrar(t *testing.T) {
	objects, text := kustomize(t, "self-registration")
	assert.NotContains(t, text, "node-driver-registrar")
	pod := daemonSet(t, objects).Spec.Template.Spec
	checkReferences(t, "spdkcsi-node", pod)
	require.Len(t, pod.Containers, 2)
	c := pod.Containers[0]
	accepts(t, c)
	assert.Equal(t, "$(KUBELET_ROOT)/plugins/csi.spdk.io/csi.sock", arg(c, "--kubelet-registration-path"))
	assert.Equal(t, "/var/lib/kubelet", environment(c)["KUBELET_ROOT"])
	assert.Equal(t, "/var/lib/kubelet/plugins_registry", mountAt(pod, "/registration").source.HostPath.Path)
	assert.Equal(t, "/var/lib/kubelet/plugins/csi.spdk.io", mountAt(pod, "/csi").source.HostPath.Path, "where the flag says that it is")
	assert.False(t, *pod.AutomountServiceAccountToken)
}

// No path that the node plugin uses is below another distribution's directory, and paths in the
// container are the same as on the node.
func TestKubeletPathsFollowTheDistribution(t *testing.T) {
	for component, root := range kubeletRoots {
		t.Run(component, func(t *testing.T) {
			objects, _ := kustomize(t, component)
			set := daemonSet(t, objects)
			checkReferences(t, "spdkcsi-node", set.Spec.Template.Spec)
			text, err := yaml.Marshal(set)
			require.NoError(t, err)
			assert.NotContains(t, strings.ReplaceAll(string(text), root, "ROOT"), "/var/lib/kubelet")
			pod := set.Spec.Template.Spec
			accepts(t, pod.Containers[0])
			for _, folder := range []string{"/plugins", "/pods"} {
				assert.Equal(t, root+folder, mountAt(pod, root+folder).source.HostPath.Path)
				i := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == root+folder })
				require.NotNil(t, pod.Containers[0].VolumeMounts[i].MountPropagation)
				assert.Equal(t, corev1.MountPropagationBidirectional, *pod.Containers[0].VolumeMounts[i].MountPropagation)
			}
			assert.Equal(t, root+"/plugins/csi.spdk.io", mountAt(pod, "/csi").source.HostPath.Path)
			assert.Equal(t, root+"/plugins_registry", mountAt(pod, "/registration").source.HostPath.Path)
			assert.Len(t, pod.Volumes, len(node(t).pod.Volumes))
		})
	}
}

// Only the plugin's own container has the node plugin's token, which permits the calls that the
// plugin makes.
func TestOnlyThePluginContainerHasTheToken(t *testing.T) {
	objects, _ := kustomize(t, "node-lifecycle")
	pod := daemonSet(t, objects).Spec.Template.Spec
	checkReferences(t, "spdkcsi-node", pod)
	c := pod.Containers[0]
	accepts(t, c)
	assert.Equal(t, "csi.spdk.io/agent-not-ready", arg(c, "--startup-taint"))
	assert.False(t, *pod.AutomountServiceAccountToken, "it would give every container the token")
	const path = "/var/run/secrets/kubernetes.io/serviceaccount"
	token := mountAt(pod, path)
	require.NotNil(t, token.source)
	assert.True(t, token.readOnly)
	assert.Equal(t, "token", token.source.Projected.Sources[0].ServiceAccountToken.Path)
	assert.Equal(t, "ca.crt", token.source.Projected.Sources[1].ConfigMap.Items[0].Path)
	for _, other := range pod.Containers[1:] {
		for _, m := range other.VolumeMounts {
			assert.NotEqual(t, "kubernetes-api", m.Name, other.Name)
		}
	}
	assert.NotContains(t, fmt.Sprint(pod.Containers), "node-driver-registrar", "it would unregister the driver while the hook waits")

	role := find[*rbacv1.ClusterRole](t, objects, "spdkcsi-node-role")
	assert.Equal(t, map[string]string{"nodes": "get patch", "storage.k8s.io/csinodes": "get", "storage.k8s.io/volumeattachments": "list"}, flatten(t, role.Rules))
	binding := find[*rbacv1.ClusterRoleBinding](t, objects, "spdkcsi-node-binding")
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: "spdkcsi-node-sa", Namespace: namespace}}, binding.Subjects)
	assert.Equal(t, role.Name, binding.RoleRef.Name)

	hook := c.Lifecycle.PreStop.Exec.Command
	help, err := exec.Command(binary(t, "spdk-csi"), append(hook[1:], "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", help)
	assert.Contains(t, string(help), "(default 4m0s)")
	assert.Greater(t, *pod.TerminationGracePeriodSeconds, int64(240+20), "the hook's time limit and the driver's --drain-timeout")
	assert.Equal(t, "NODE_ID", c.Env[0].Name, "the hook takes the node's name from it")
}

// csi-provisioner is allowed to read the nodes' zones, and the node plugin can determine its own
// zone in two ways.
func TestZonesComponentSetsTopology(t *testing.T) {
	objects, _ := kustomize(t, "zones")
	c := daemonSet(t, objects).Spec.Template.Spec.Containers[0]
	accepts(t, c)
	assert.Equal(t, "topology.kubernetes.io/zone=$(ZONE)", arg(c, "--topology"))
	assert.Equal(t, "topology.kubernetes.io/zone", arg(c, "--topology-labels"))
	i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "ZONE" })
	assert.Equal(t, "metadata.labels['topology.kubernetes.io/zone']", c.Env[i].ValueFrom.FieldRef.FieldPath)
	rules := flatten(t, find[*rbacv1.ClusterRole](t, objects, "spdkcsi-provisioner-role").Rules)
	assert.Equal(t, "get list watch", rules["nodes"])
	assert.Equal(t, "get list watch", rules["storage.k8s.io/csinodes"])
	assert.Equal(t, storagev1.VolumeBindingWaitForFirstConsumer, *find[*storagev1.StorageClass](t, objects, storageClass).VolumeBindingMode)
}

// csi-provisioner publishes free space in its own namespace, in objects owned by the Deployment.
func TestStorageCapacityIsPublished(t *testing.T) {
	objects, _ := kustomize(t, "storage-capacity")
	assert.True(t, *find[*storagev1.CSIDriver](t, objects, "csi.spdk.io").Spec.StorageCapacity)
	c := find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec.Containers[1]
	assert.Contains(t, c.Args, "--enable-capacity")
	assert.Contains(t, c.Args, "--capacity-ownerref-level=2")
	require.Len(t, c.Env, 2)
	assert.Equal(t, "metadata.namespace", c.Env[0].ValueFrom.FieldRef.FieldPath)
	assert.Equal(t, "metadata.name", c.Env[1].ValueFrom.FieldRef.FieldPath)
	rules := flatten(t, find[*rbacv1.Role](t, objects, "spdkcsi-controller-role").Rules)
	assert.Equal(t, map[string]string{
		"secrets named spdkcsi-secret": "get", "coordination.k8s.io/leases": "get create update",
		"storage.k8s.io/csistoragecapacities": "get list watch create update delete", "pods": "get", "apps/replicasets": "get",
	}, rules)
}
