package deploy

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A workload is an object that creates pods.
type workload struct {
	name     string
	selector *metav1.LabelSelector
	labels   map[string]string
	pod      corev1.PodSpec
}

func workloads(t *testing.T) []workload {
	t.Helper()
	var found []workload
	for _, o := range plain(t) {
		switch v := o.Object.(type) {
		case *appsv1.Deployment:
			found = append(found, workload{v.Name, v.Spec.Selector, v.Spec.Template.Labels, v.Spec.Template.Spec})
		case *appsv1.DaemonSet:
			found = append(found, workload{v.Name, v.Spec.Selector, v.Spec.Template.Labels, v.Spec.Template.Spec})
		}
	}
	require.Len(t, found, 2, "the controller and the node service")
	return found
}

func controller(t *testing.T) workload { return workloadNamed(t, "spdkcsi-controller") }
func node(t *testing.T) workload       { return workloadNamed(t, "spdkcsi-node") }

func workloadNamed(t *testing.T, name string) workload {
	t.Helper()
	all := workloads(t)
	i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
	require.GreaterOrEqual(t, i, 0, "no workload %s", name)
	return all[i]
}

// container returns the container with this name; the test fails if there is none.
func (w workload) container(t *testing.T, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(w.pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, "%s has no container %s", w.name, name)
	return w.pod.Containers[i]
}

// mount returns the volume at a path in a container.
func (w workload) mount(t *testing.T, container, path string) (corev1.VolumeMount, corev1.Volume) {
	t.Helper()
	for _, m := range w.container(t, container).VolumeMounts {
		if m.MountPath != path {
			continue
		}
		for _, v := range w.pod.Volumes {
			if v.Name == m.Name {
				return m, v
			}
		}
	}
	require.FailNow(t, "nothing mounted", "%s, container %s: %s", w.name, container, path)
	return corev1.VolumeMount{}, corev1.Volume{}
}

// allPods returns the pods in the workloads and the examples, by name.
func allPods(t *testing.T) map[string]corev1.PodSpec {
	pods := map[string]corev1.PodSpec{}
	for _, w := range workloads(t) {
		pods[w.name] = w.pod
	}
	for _, o := range examples(t) {
		if p, ok := o.Object.(*corev1.Pod); ok {
			pods[p.Name] = p.Spec
		}
	}
	return pods
}

var pinned = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+/[a-z0-9./-]+:v?[0-9]+\.[0-9]+\.[0-9]+$`)

func TestContainersAreRestricted(t *testing.T) {
	for name, pod := range allPods(t) {
		for _, c := range pod.Containers {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				assert.Regexp(t, pinned, c.Image, "name the registry and a released version")
				s := c.SecurityContext
				require.NotNil(t, s, "no securityContext")
				require.NotNil(t, s.ReadOnlyRootFilesystem)
				assert.True(t, *s.ReadOnlyRootFilesystem, "readOnlyRootFilesystem")
				require.NotNil(t, s.AllowPrivilegeEscalation)
				privileged := s.Privileged != nil && *s.Privileged
				assert.Equal(t, name == "spdkcsi-node" && c.Name == "spdkcsi-node", privileged, "only the node service may be privileged")
				if !privileged {
					assert.False(t, *s.AllowPrivilegeEscalation, "allowPrivilegeEscalation")
					require.NotNil(t, s.Capabilities)
					assert.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop)
					assert.Empty(t, s.Capabilities.Add)
				}
				assert.False(t, c.Resources.Requests.Cpu().IsZero(), "requests.cpu")
				assert.False(t, c.Resources.Requests.Memory().IsZero(), "requests.memory")
				assert.True(t, c.Resources.Limits.Cpu().IsZero(), "a CPU limit slows storage down and has no benefit")
			})
		}
		require.NotNil(t, pod.SecurityContext, name)
		require.NotNil(t, pod.SecurityContext.SeccompProfile, name)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type, name)
	}
}

// checkReferences checks that every volume and port that a pod references exists.
func checkReferences(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	volumes, used, ports := map[string]bool{}, map[string]bool{}, map[int32]string{}
	for _, v := range pod.Volumes {
		assert.False(t, volumes[v.Name], "%s: volume %s twice", name, v.Name)
		volumes[v.Name] = true
	}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			assert.True(t, volumes[m.Name], "%s/%s mounts %s, which is not a volume of the pod", name, c.Name, m.Name)
			used[m.Name] = true
		}
		for _, d := range c.VolumeDevices {
			used[d.Name] = true
		}
		for _, p := range c.Ports {
			assert.Empty(t, ports[p.ContainerPort], "%s/%s: port %d is taken", name, c.Name, p.ContainerPort)
			ports[p.ContainerPort] = c.Name
			assert.LessOrEqual(t, len(p.Name), 15, "%s: the API refuses the port name %s", name, p.Name)
		}
		for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if probe == nil {
				continue
			}
			var port string
			if probe.TCPSocket != nil {
				port = probe.TCPSocket.Port.StrVal
			} else {
				port = probe.HTTPGet.Port.StrVal
			}
			assert.True(t, slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port }),
				"%s/%s: the probe asks at a port that the container has not", name, c.Name)
		}
	}
	for v := range volumes {
		assert.True(t, used[v], "%s: no container uses volume %s", name, v)
	}
}

// Every volume, port and label that a pod references must exist. The API server would report a
// missing one only after deployment.
func TestPodReferencesExist(t *testing.T) {
	for name, pod := range allPods(t) {
		checkReferences(t, name, pod)
	}
	for _, w := range workloads(t) {
		selector, err := metav1.LabelSelectorAsSelector(w.selector)
		require.NoError(t, err)
		assert.True(t, selector.Matches(labels.Set(w.labels)), "%s does not select its own pods", w.name)
	}
}

func TestControllerPodHasRequiredSettings(t *testing.T) {
	w := controller(t)
	assert.Equal(t, "system-cluster-critical", w.pod.PriorityClassName)
	assert.False(t, w.pod.HostNetwork)
	require.NotNil(t, w.pod.SecurityContext.RunAsNonRoot)
	assert.True(t, *w.pod.SecurityContext.RunAsNonRoot)
	for _, v := range w.pod.Volumes {
		assert.Nil(t, v.HostPath, "%s: the controller needs no directory of its node", v.Name)
	}
	replicas := find[*appsv1.Deployment](t, plain(t), w.name).Spec.Replicas
	require.NotNil(t, replicas)
	budget := find[*policyv1.PodDisruptionBudget](t, plain(t), w.name)
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	require.NoError(t, err)
	assert.True(t, selector.Matches(labels.Set(w.labels)))
	assert.Less(t, budget.Spec.MaxUnavailable.IntVal, *replicas)
	for _, c := range w.pod.Containers {
		if *replicas > 1 && strings.HasPrefix(c.Image, "registry.k8s.io/sig-storage/csi-") {
			assert.Contains(t, c.Args, "--leader-election", "%s: without it, both replicas would be active", c.Name)
			assert.Contains(t, c.Args, "--feature-gates=ReleaseLeaderElectionOnExit=true", "%s: without it, nobody leads for 30 s after the leader's pod was stopped", c.Name)
			assert.Equal(t, "100", arg(c, "--kube-api-qps"), "%s: by default, 1,000 claims take more than 6 minutes", c.Name)
			assert.Equal(t, "1m", arg(c, "--retry-interval-max"), "%s: by default, a claim waits for up to 5 minutes after what was wrong is right again", c.Name)
		}
	}
	for _, path := range []string{"/etc/spdkcsi-config", "/etc/spdkcsi-secret", "/etc/spdkcsi-ca"} {
		m, _ := w.mount(t, "spdkcsi-controller", path)
		assert.True(t, m.ReadOnly, path)
	}
	_, ca := w.mount(t, "spdkcsi-controller", "/etc/spdkcsi-ca")
	assert.True(t, *ca.ConfigMap.Optional, "a proxy with a publicly trusted certificate needs no CA file")
}

func TestNodePodHasRequiredSettings(t *testing.T) {
	w := node(t)
	assert.Equal(t, "system-node-critical", w.pod.PriorityClassName)
	assert.True(t, w.pod.HostNetwork)
	assert.False(t, w.pod.HostPID)
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, w.pod.Tolerations, "volumes of tainted nodes must be unmounted too")
	require.NotNil(t, w.pod.AutomountServiceAccountToken)
	assert.False(t, *w.pod.AutomountServiceAccountToken)
	assert.NotContains(t, w.container(t, "spdkcsi-node").Resources.Limits, corev1.ResourceMemory, "a memory limit could kill a file system check")

	// kubelet and the driver use the same paths, and see each other's mounts.
	for _, path := range []string{"/var/lib/kubelet/plugins", "/var/lib/kubelet/pods"} {
		m, v := w.mount(t, "spdkcsi-node", path)
		assert.Equal(t, path, v.HostPath.Path)
		require.NotNil(t, m.MountPropagation, path)
		assert.Equal(t, corev1.MountPropagationBidirectional, *m.MountPropagation, path)
	}
	for path, want := range map[string]string{"/dev": "/dev", "/sys": "/sys", "/lib/modules": "/lib/modules", "/host/proc": "/proc"} {
		m, v := w.mount(t, "spdkcsi-node", path)
		assert.Equal(t, want, v.HostPath.Path)
		assert.Equal(t, path == "/lib/modules" || path == "/host/proc", m.ReadOnly, path)
	}
	// A second mount of these directories would keep devices busy after all other mounts have been
	// removed.
	for _, v := range w.pod.Volumes {
		if v.HostPath != nil {
			assert.NotContains(t, []string{"/", "/var", "/var/lib", "/var/lib/kubelet"}, v.HostPath.Path, v.Name)
		}
	}
}

// The driver, its sidecars and its probe use the same sockets and ports.
func TestContainersUseTheSameSockets(t *testing.T) {
	const socket = "/csi/csi.sock"
	for _, w := range workloads(t) {
		assert.Contains(t, w.container(t, w.name).Args, "--endpoint=unix://"+socket, w.name)
		for _, c := range w.pod.Containers {
			_, v := w.mount(t, c.Name, "/csi")
			assert.Equal(t, "socket-dir", v.Name)
			if c.Name != w.name {
				assert.Contains(t, c.Args, "--csi-address="+socket, "%s/%s", w.name, c.Name)
			}
		}
		port := w.container(t, w.name).Ports[0].ContainerPort
		listen := arg(w.container(t, "spdkcsi-liveness"), "--http-endpoint")
		_, listenPort, _ := strings.Cut(listen, ":")
		assert.Equal(t, strconv.Itoa(int(port)), listenPort, "%s: the probe and livenessprobe differ", w.name)
	}
	n := node(t)
	_, socketDir := n.mount(t, "spdkcsi-node", "/csi")
	assert.Equal(t, "/var/lib/kubelet/plugins/"+driverName, socketDir.HostPath.Path)
	assert.Equal(t, socketDir.HostPath.Path+"/csi.sock", arg(n.container(t, "spdkcsi-registrar"), "--kubelet-registration-path"))
	_, registration := n.mount(t, "spdkcsi-registrar", "/registration")
	assert.Equal(t, "/var/lib/kubelet/plugins_registry", registration.HostPath.Path)
	assert.True(t, strings.HasPrefix(arg(n.container(t, "spdkcsi-liveness"), "--http-endpoint"), "127.0.0.1:"), "the port must not be reachable from the node's network")
}

// arg returns the value of a flag in a container's arguments.
func arg(c corev1.Container, flag string) string {
	for _, a := range c.Args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value
		}
	}
	return ""
}
