package deploy

import (
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
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// The tests in this file check the chart of spdk-proxy. proxy_run_test.go runs the proxy as the
// chart specifies.
const proxyChart = "helm/spdk-proxy"

// proxyRendered returns the objects rendered from the proxy's chart.
func proxyRendered(t *testing.T, values map[string]any) []object {
	t.Helper()
	return kubernetesObjects(t, template(t, proxyChart, "spdk-proxy", values))
}

func proxyPod(t *testing.T, objects []object) corev1.PodSpec {
	t.Helper()
	return find[*appsv1.DaemonSet](t, objects, "spdk-proxy").Spec.Template.Spec
}

func TestProxyChartPodHasRequiredSettings(t *testing.T) {
	objects := proxyRendered(t, nil)
	set := find[*appsv1.DaemonSet](t, objects, "spdk-proxy")
	pod := proxyPod(t, objects)
	c := pod.Containers[0]
	checkReferences(t, "spdk-proxy", pod)
	assert.Equal(t, set.Spec.Selector.MatchLabels, map[string]string{"app": set.Spec.Template.Labels["app"]})
	assert.Equal(t, map[string]string{"spdkgate.io/storage-server": "true"}, pod.NodeSelector)
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations)
	assert.False(t, *pod.AutomountServiceAccountToken)
	assert.False(t, pod.HostNetwork)
	assert.Equal(t, []corev1.ContainerPort{{Name: "https", ContainerPort: 9009, HostPort: 9009}}, c.Ports)

	s := c.SecurityContext
	assert.Equal(t, int64(0), *pod.SecurityContext.RunAsUser, "only spdk_tgt's user can open its socket")
	assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	assert.Equal(t, &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, s.Capabilities)
	assert.True(t, *s.ReadOnlyRootFilesystem)
	assert.False(t, *s.AllowPrivilegeEscalation)
	assert.Nil(t, s.Privileged)
	assert.True(t, c.Resources.Limits.Cpu().IsZero())
	assert.Regexp(t, pinned, c.Image)

	var host []string
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			host = append(host, v.HostPath.Path)
		}
	}
	assert.Equal(t, []string{"/run/spdk", "/var/lib/spdk-proxy"}, host, "nothing else of the node")
	assert.True(t, mountAt(pod, "/run/spdk").readOnly)
	assert.False(t, mountAt(pod, "/var/lib/spdk-proxy").readOnly)
	assert.True(t, mountAt(pod, "/etc/spdk-proxy").readOnly)

	out, err := exec.Command(binary(t, "spdk-proxy"), append(slices.Clone(c.Args), "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command("sh", "-c", binary(t, "spdk-proxy")+" serve --help").CombinedOutput()
	require.NoError(t, err)
	assert.Contains(t, string(out), mountPathOf(pod, "config")+"/spdk-proxy.yaml", "the default of --config")
}

func mountPathOf(pod corev1.PodSpec, volume string) string {
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == volume {
			return m.MountPath
		}
	}
	return "no mount of " + volume
}

func TestProxyChartValuesTakeEffect(t *testing.T) {
	objects := proxyRendered(t, map[string]any{
		"hostNetwork": true, "listenAddress": "192.0.2.1", "port": 9443, "runAsUser": 1000, "runAsGroup": 1001, "secrets": []any{"hashes"},
		"target": map[string]any{"socketDir": "/srv/spdk", "socketName": "rpc.sock"}, "stateDir": "/srv/state",
		"tls":           map[string]any{"secretName": "mine", "clientCAConfigMap": "clients", "clientAuth": "required"},
		"clusterTokens": map[string]any{"enabled": true},
	})
	pod := proxyPod(t, objects)
	checkReferences(t, "spdk-proxy", pod)
	assert.Equal(t, corev1.DNSClusterFirstWithHostNet, pod.DNSPolicy, "the API server has a name of the cluster")
	assert.Equal(t, int64(1000), *pod.SecurityContext.RunAsUser)
	assert.Equal(t, int64(1001), *pod.SecurityContext.FSGroup, "to read the Secrets")
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Equal(t, "hashes", mountAt(pod, "/etc/spdk-proxy").source.Projected.Sources[1].Secret.Name)
	assert.Equal(t, "mine", mountAt(pod, "/etc/spdk-proxy-tls").source.Secret.SecretName)
	assert.Equal(t, "clients", mountAt(pod, "/etc/spdk-proxy-client-ca").source.ConfigMap.Name)
	assert.Equal(t, "/srv/spdk", mountAt(pod, "/srv/spdk").source.HostPath.Path)
	for _, probe := range []*corev1.Probe{pod.Containers[0].LivenessProbe, pod.Containers[0].ReadinessProbe} {
		require.NotNil(t, probe.TCPSocket, "kubelet has no client certificate")
		assert.Equal(t, "192.0.2.1", probe.TCPSocket.Host)
	}
	var c struct {
		Listen string
		Target struct {
			Socket    string
			PeerUsers []string `json:"peer_users"`
			Save      struct{ Dir string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(configuration(t, objects)), &c))
	assert.Equal(t, "192.0.2.1:9443", c.Listen)
	assert.Equal(t, "/srv/spdk/rpc.sock", c.Target.Socket)
	assert.Equal(t, []string{"1000"}, c.Target.PeerUsers)
	assert.Equal(t, "/srv/state/target", c.Target.Save.Dir)
}

func configuration(t *testing.T, objects []object) string {
	t.Helper()
	return find[*corev1.Secret](t, objects, "spdk-proxy-config").StringData["spdk-proxy.yaml"]
}

// Pods restart only for changes that the running proxy cannot apply.
func TestProxyChartRestartsPodsOnlyWhenNeeded(t *testing.T) {
	restart := func(config map[string]any) string {
		set := find[*appsv1.DaemonSet](t, proxyRendered(t, map[string]any{"config": config}), "spdk-proxy")
		return set.Spec.Template.Annotations["spdkgate.io/restart"]
	}
	first := restart(map[string]any{})
	require.NotEmpty(t, first)
	for name, c := range map[string]struct {
		config map[string]any
		same   bool
	}{
		"roles":       {map[string]any{"roles": map[string]any{"x": map[string]any{"allow": []any{"bdev_get_bdevs"}}}}, true},
		"timeouts":    {map[string]any{"target": map[string]any{"timeouts": map[string]any{"default": "1m"}}}, true},
		"limits":      {map[string]any{"limits": map[string]any{"user_in_flight": 3}}, true},
		"log":         {map[string]any{"log": map[string]any{"level": "warn"}}, false},
		"metrics":     {map[string]any{"metrics": map[string]any{"latency_histograms": []any{"nvme0n1"}}}, false},
		"connections": {map[string]any{"limits": map[string]any{"connections": 3}}, false},
		"target":      {map[string]any{"target": map[string]any{"max_in_flight": 3}}, false},
	} {
		assert.Equal(t, c.same, first == restart(c.config), name)
	}
}

func TestProxyChartNetworkPolicyIsMinimal(t *testing.T) {
	policy := func(values map[string]any) networkingv1.NetworkPolicySpec {
		objects := proxyRendered(t, values)
		p := find[*networkingv1.NetworkPolicy](t, objects, "spdk-proxy")
		assert.Equal(t, p.Spec.PodSelector.MatchLabels, find[*appsv1.DaemonSet](t, objects, "spdk-proxy").Spec.Template.Labels)
		assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, p.Spec.PolicyTypes)
		require.Len(t, p.Spec.Ingress, 1)
		return p.Spec
	}
	p := policy(map[string]any{"networkPolicy": map[string]any{"create": true}})
	assert.Equal(t, "https", rules(p.Ingress[0].From, p.Ingress[0].Ports))
	assert.Empty(t, p.Egress, "the target is a socket")
	fromFile := map[string]any{"name": "corporate", "issuer": "corporate", "audience": "spdk-proxy", "jwks_file": "jwks.json"}
	p = policy(map[string]any{"config": map[string]any{"oidc": []any{fromFile}}, "networkPolicy": map[string]any{"create": true}})
	assert.Empty(t, p.Egress, "the keys are in a file")
	discovered := map[string]any{"name": "other", "issuer": "https://id.example", "audience": "spdk-proxy"}
	p = policy(map[string]any{"config": map[string]any{"oidc": []any{fromFile, discovered}}, "networkPolicy": map[string]any{"create": true}})
	assert.Len(t, p.Egress, 1, "the keys of the second are asked for")

	p = policy(map[string]any{
		"clusterTokens": map[string]any{"enabled": true},
		"networkPolicy": map[string]any{"create": true, "from": []any{map[string]any{"ipBlock": map[string]any{"cidr": "192.0.2.0/24"}}}},
	})
	assert.Equal(t, "192.0.2.0/24 https", rules(p.Ingress[0].From, p.Ingress[0].Ports))
	require.Len(t, p.Egress, 1)
	assert.Equal(t, "53/UDP 53/TCP 443 6443", rules(p.Egress[0].To, p.Egress[0].Ports))
}

// The certificate has the fields of cert-manager's v1 API.
func TestProxyChartCertificateIsValid(t *testing.T) {
	text := template(t, proxyChart, "spdk-proxy", map[string]any{"tls": map[string]any{"certManager": map[string]any{
		"issuerRef": map[string]any{"name": "storage-ca", "kind": "ClusterIssuer"}, "dnsNames": []any{"storage-1.example"}, "ipAddresses": []any{"192.0.2.11"},
	}}})
	i := strings.Index(text, "apiVersion: cert-manager.io/v1")
	require.Positive(t, i)
	doc, _, _ := strings.Cut(text[i:], "\n---\n")
	var c struct {
		APIVersion, Kind string
		Metadata         struct{ Name, Namespace string }
		Spec             struct {
			SecretName            string
			IssuerRef             struct{ Name, Kind, Group string }
			DNSNames, IPAddresses []string
			Usages                []string
			PrivateKey            struct{ Algorithm, RotationPolicy string }
		}
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(doc), &c))
	assert.Equal(t, "spdk-proxy-tls", c.Spec.SecretName, "which the pod mounts")
	assert.Equal(t, "storage-ca", c.Spec.IssuerRef.Name)
	assert.Equal(t, []string{"storage-1.example"}, c.Spec.DNSNames)
}

func TestProxyChartRejectsInvalidValues(t *testing.T) {
	for name, c := range map[string]struct{ value, says string }{
		"no users":                        {"config.users=null", "/config/users"},
		"a password":                      {"config.users[0].password=secret", "password"},
		"a hash of something else":        {"config.users[0].password_hash=secret", "password_hash"},
		"an unknown key":                  {"config.limits.usersInFlight=3", "usersInFlight"},
		"a key that the chart sets":       {"config.listen=0.0.0.0:1", "listen"},
		"metrics of an address":           {"config.metrics.listen=127.0.0.1:9010", "listen"},
		"a histogram of nothing":          {"config.metrics.latency_histograms[0]=", "latency_histograms"},
		"a socket that the chart sets":    {"config.target.socket=/x", "socket"},
		"a self-signed certificate":       {"tls.secretName=", "tls.secretName"},
		"an address of the node":          {"listenAddress=192.0.2.1", "hostNetwork"},
		"a policy without effect":         {"networkPolicy.create=true,hostNetwork=true", "hostNetwork"},
		"no authorities":                  {"tls.clientAuth=required", "clientCAConfigMap"},
		"a port":                          {"port=70000", "port"},
		"a relative path":                 {"stateDir=state", "stateDir"},
		"all nodes":                       {"nodeSelector=null", "nodeSelector"},
		"a certificate without names":     {"tls.certManager.issuerRef.name=x", "dnsNames"},
		"a PodMonitor that cannot log in": {"metrics.podMonitor=true", "metrics.userSecret"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, "template", "x", proxyChart, "-f", proxyChart+"/example-values.yaml", "--kube-version", "1.36.0", "--set", c.value)
			require.Error(t, err, out)
			assert.Contains(t, out, c.says)
		})
	}
	out, err := helm(t, "lint", "--strict", proxyChart, "-f", proxyChart+"/example-values.yaml")
	require.NoError(t, err, out)
}

// The description of spdk_tgt's pod in README.md matches the chart's defaults and the program.
func TestTargetPodInTheReadmeMatchesTheChart(t *testing.T) {
	readme, err := os.ReadFile(proxyChart + "/README.md")
	require.NoError(t, err)
	_, text, ok := strings.Cut(string(readme), "```yaml\ninitContainers:")
	require.True(t, ok)
	text, _, _ = strings.Cut("initContainers:"+text, "```")
	var pod corev1.PodSpec
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &pod))
	proxy := proxyPod(t, proxyRendered(t, nil))
	for _, path := range []string{"/run/spdk", "/var/lib/spdk-proxy"} {
		assert.Equal(t, mountAt(proxy, path).source.HostPath, mountAt(pod, path).source.HostPath, path)
	}
	saved := pod.InitContainers[0]
	assert.Equal(t, proxy.Containers[0].Image, saved.Image)
	out, err := exec.Command(binary(t, "spdk-proxy"), append(slices.Clone(saved.Args), "--help")...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var c struct {
		Target struct {
			Socket string
			Save   struct{ Dir string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(configuration(t, proxyRendered(t, nil))), &c))
	assert.Equal(t, c.Target.Save.Dir, saved.Args[slices.Index(saved.Args, "--dir")+1])
	args := pod.Containers[0].Args
	assert.Equal(t, c.Target.Socket, args[slices.Index(args, "-r")+1])
	assert.Equal(t, filepath.Join(c.Target.Save.Dir, "current.json"), args[slices.Index(args, "-c")+1])
}
