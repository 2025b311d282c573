package deploy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spdkgate/spdkgate/driver/class"
)

// The tests in this file cover options that only the driver's chart has. TestChartValuesTakeEffect
// covers values that change a single line.

func server(name, url string) map[string]any {
	return map[string]any{"name": name, "rpcURL": url, "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}
}

// rules lists what a policy permits, in the form "PEER PORTS".
func rules(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) string {
	var said []string
	for _, p := range peers {
		if p.IPBlock != nil {
			_, err := netip.ParsePrefix(p.IPBlock.CIDR)
			said = append(said, p.IPBlock.CIDR)
			if err != nil {
				said = append(said, err.Error())
			}
		} else {
			said = append(said, fmt.Sprint(p.NamespaceSelector.MatchLabels))
			if p.PodSelector != nil {
				said = append(said, fmt.Sprint(p.PodSelector.MatchLabels))
			}
		}
	}
	for _, p := range ports {
		port := p.Port.String()
		if p.Protocol != nil {
			port += "/" + string(*p.Protocol)
		}
		said = append(said, port)
	}
	return strings.Join(said, " ")
}

func TestChartNetworkPolicyIsMinimal(t *testing.T) {
	for _, o := range rendered(t, nil) {
		assert.NotEqual(t, "NetworkPolicy", o.kind(), "the port of the API server is not known before the administrator has looked")
	}
	objects := rendered(t, map[string]any{
		"storageServers": []any{
			server("a", "https://192.0.2.11:9009"), server("b", "https://[2001:db8::1]:9010/"), server("c", "https://storage.example"), server("d", "http://192.0.2.12"),
		},
		"credentials": map[string]any{"existingSecret": "accounts"},
		"metrics":     map[string]any{"tokenSecret": "metrics"},
		"networkPolicy": map[string]any{
			"create": true, "apiServer": map[string]any{"ports": []any{6443}, "cidrs": []any{"192.0.2.1/32"}},
			"metricsFrom": []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"name": "monitoring"}}}},
			"egress":      []any{map[string]any{"ports": []any{map[string]any{"port": 8200}}}},
		},
	})
	p := find[*networkingv1.NetworkPolicy](t, objects, "spdkcsi-controller")
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	require.NoError(t, err)
	deployment := find[*appsv1.Deployment](t, objects, "spdkcsi-controller")
	assert.True(t, selector.Matches(labels.Set(deployment.Spec.Template.Labels)))
	assert.False(t, selector.Matches(labels.Set(daemonSet(t, objects).Spec.Template.Labels)))
	assert.True(t, selector.Matches(labels.Set(testPod(t, nil).Labels)), "the pod of helm test needs the same")
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, p.Spec.PolicyTypes)

	require.Len(t, p.Spec.Ingress, 1)
	in := p.Spec.Ingress[0]
	assert.Equal(t, "map[name:monitoring] metrics provisioner attacher resizer snapshotter", rules(in.From, in.Ports))
	var ports []string
	for _, c := range deployment.Spec.Template.Spec.Containers {
		for _, port := range c.Ports {
			ports = append(ports, port.Name)
		}
	}
	for _, port := range in.Ports {
		assert.Contains(t, ports, port.Port.String(), "no container has a port of this name")
	}

	var out []string
	for _, r := range p.Spec.Egress {
		out = append(out, rules(r.To, r.Ports))
	}
	const proxies = " map[] map[app:spdk-proxy] " // all namespaces
	assert.Equal(t, []string{"53/UDP 53/TCP", "192.0.2.1/32 6443", "192.0.2.11/32" + proxies + "9009", "2001:db8::1/128" + proxies + "9010", "443", "192.0.2.12/32" + proxies + "80", "8200"}, out)
	assert.Equal(t, map[string]string{"app": "spdk-proxy"}, find[*appsv1.DaemonSet](t, proxyRendered(t, nil), "spdk-proxy").Spec.Template.Labels)
}

// The token for reading metrics must be mounted at the path in the arguments.
func TestChartMountsTheMetricsToken(t *testing.T) {
	objects := rendered(t, map[string]any{"metrics": map[string]any{"tokenSecret": "metrics-token", "dashboards": true}})
	for _, of := range []struct {
		pod  corev1.PodSpec
		port corev1.ContainerPort
	}{
		{find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec, corev1.ContainerPort{Name: "metrics", ContainerPort: 9810}},
		{daemonSet(t, objects).Spec.Template.Spec, corev1.ContainerPort{Name: "metrics", ContainerPort: 9811, HostPort: 9811}},
	} {
		c := of.pod.Containers[0]
		accepts(t, c)
		checkReferences(t, c.Name, of.pod)
		assert.Equal(t, fmt.Sprintf(":%d", of.port.ContainerPort), arg(c, "--metrics-address"))
		assert.Contains(t, c.Ports, of.port)
		assert.Equal(t, "/etc/spdkcsi-metrics/token", arg(c, "--metrics-token-file"))
		token := mountAt(of.pod, "/etc/spdkcsi-metrics")
		assert.True(t, token.readOnly)
		assert.Equal(t, "metrics-token", token.source.Secret.SecretName)
	}
	board := find[*corev1.ConfigMap](t, objects, "spdkcsi-dashboards")
	assert.Equal(t, map[string]string{"grafana_dashboard": "1"}, board.Labels, "Grafana's sidecar looks for it")
	assert.Contains(t, board.Data["spdk-csi-volumes.json"], `"uid": "spdkgate-volumes"`)
}

func TestChartCreatesClasses(t *testing.T) {
	objects := rendered(t, map[string]any{
		"storageClasses": []any{
			map[string]any{"name": "fast", "parameters": map[string]any{"qosIOPS": "0"}, "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer", "mountOptions": []any{"noatime"}},
			map[string]any{"name": "bare"},
		},
		"snapshotClasses":         []any{map[string]any{"name": "kept", "deletionPolicy": "Retain", "default": true}},
		"volumeAttributesClasses": []any{map[string]any{"name": "silver", "parameters": map[string]any{"qosIOPS": "20000", "qosWriteMiBPerSecond": "100"}}},
	})
	find[*storagev1.StorageClass](t, objects, storageClass)
	fast := find[*storagev1.StorageClass](t, objects, "fast")
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, *fast.ReclaimPolicy)
	assert.Equal(t, storagev1.VolumeBindingWaitForFirstConsumer, *fast.VolumeBindingMode)
	assert.Equal(t, []string{"noatime"}, fast.MountOptions)
	assert.Equal(t, "0", fast.Parameters["qosIOPS"])
	bare := find[*storagev1.StorageClass](t, objects, "bare")
	assert.Equal(t, corev1.PersistentVolumeReclaimDelete, *bare.ReclaimPolicy)
	assert.Equal(t, []string{"controller-expand", "controller-publish", "provisioner"}, secretPurposes(t, bare.Parameters))
	kept := find[*snapshotv1.VolumeSnapshotClass](t, objects, "kept")
	assert.Equal(t, snapshotv1.VolumeSnapshotContentRetain, kept.DeletionPolicy)
	assert.Equal(t, "true", kept.Annotations["snapshot.storage.kubernetes.io/is-default-class"])
	silver := find[*storagev1.VolumeAttributesClass](t, objects, "silver")
	assert.Equal(t, driverName, silver.DriverName)
	_, err := class.ParseMutable(silver.Parameters)
	require.NoError(t, err)

	out, err := helm(t, "template", "x", chart, "-f", chart+"/example-values.yaml", "--kube-version", "1.33.0",
		"--set-json", `volumeAttributesClasses=[{"name": "silver", "parameters": {"qosIOPS": "20000"}}]`)
	require.Error(t, err)
	assert.Contains(t, out, "needs Kubernetes 1.34")
}

// The check for `helm uninstall` runs before anything is deleted, and is only allowed to list
// objects. Its own objects are removed after the check, and do not exist while the driver is
// running.
func TestHelmUninstallCheckRunsBeforeDeletion(t *testing.T) {
	hooks := func(values map[string]any) (objects []object) {
		for doc := range strings.SplitSeq(template(t, chart, namespace, values), "\n---\n") {
			if strings.Contains(doc, "helm.sh/hook: pre-delete") {
				found, err := decode("hook", []byte(doc))
				require.NoError(t, err)
				objects = append(objects, found...)
			}
		}
		return objects
	}
	all := hooks(map[string]any{"imagePullSecrets": []string{"pull"}})
	require.Len(t, all, 4)
	for _, o := range all {
		assert.Contains(t, o.meta.GetAnnotations()["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded", o)
	}
	role := find[*rbacv1.ClusterRole](t, all, "spdkcsi-uninstall-role")
	assert.Equal(t, map[string]string{"persistentvolumes": "list", "snapshot.storage.k8s.io/volumesnapshotcontents": "list"}, flatten(t, role.Rules))
	binding := find[*rbacv1.ClusterRoleBinding](t, all, "spdkcsi-uninstall-binding")
	assert.Equal(t, role.Name, binding.RoleRef.Name)
	pod := find[*corev1.Pod](t, all, "spdkcsi-uninstall-check")
	assert.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: pod.Spec.ServiceAccountName, Namespace: namespace}}, binding.Subjects)
	assert.Equal(t, "hook-failed", pod.Annotations["helm.sh/hook-output-log-policy"], "helm prints why it refuses")
	of := find[*appsv1.Deployment](t, rendered(t, nil), "spdkcsi-controller").Spec.Template.Spec
	assert.Equal(t, of.Containers[0].Image, pod.Spec.Containers[0].Image)
	assert.Equal(t, of.SecurityContext, pod.Spec.SecurityContext)
	assert.Equal(t, []string{"uninstall-check"}, pod.Spec.Containers[0].Args)
	accepts(t, pod.Spec.Containers[0])
	checkReferences(t, pod.Name, pod.Spec)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.Spec.ImagePullSecrets)
	assert.Empty(t, hooks(map[string]any{"uninstallCheck": false}))
}

// testPod returns the pod of `helm test`.
func testPod(t *testing.T, values map[string]any) *corev1.Pod {
	for doc := range strings.SplitSeq(template(t, chart, namespace, values), "\n---\n") {
		if strings.Contains(doc, "helm.sh/hook: test") {
			objects, err := decode("test", []byte(doc))
			require.NoError(t, err)
			return find[*corev1.Pod](t, objects, "spdkcsi-test")
		}
	}
	require.FailNow(t, "the chart has no test")
	return nil
}

// The pod of `helm test` has the controller's configuration and its credentials for the storage
// servers, but no access to Kubernetes.
func TestHelmTestPodHasTheControllersConfiguration(t *testing.T) {
	for _, token := range []bool{false, true} {
		values := map[string]any{"credentials": map[string]any{"serviceAccountToken": token}}
		pod := testPod(t, values)
		of := find[*appsv1.Deployment](t, rendered(t, values), "spdkcsi-controller").Spec.Template.Spec
		c := pod.Spec.Containers[0]
		accepts(t, c)
		checkReferences(t, pod.Name, pod.Spec)
		assert.Equal(t, []string{"doctor"}, c.Args)
		assert.Equal(t, of.Containers[0].Image, c.Image)
		assert.Equal(t, of.ServiceAccountName, pod.Spec.ServiceAccountName, "the proxies know its tokens")
		assert.False(t, *pod.Spec.AutomountServiceAccountToken)
		assert.Equal(t, of.SecurityContext, pod.Spec.SecurityContext)
		for _, path := range []string{"/etc/spdkcsi-config", "/etc/spdkcsi-secret", "/etc/spdkcsi-ca"} {
			assert.Equal(t, mountAt(of, path), mountAt(pod.Spec, path), path)
		}
		assert.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
	}
}
