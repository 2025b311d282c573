package deploy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
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

const chart = "helm/spdk-csi"

// helm runs helm, without any user configuration.
func helm(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	program, err := builds["helm"]()
	require.NoError(t, err)
	noteFiles(t, "helm")
	cmd := exec.Command(program, args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + filepath.Join(home, "none")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// noteFiles reads the files that another process uses, so that the go command does not use a cached
// test result after the files have changed.
func noteFiles(t *testing.T, folder string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		_, err = os.ReadFile(path)
		return err
	}))
}

// template renders a chart as `helm install` does, with the chart's example-values.yaml and
// additional values.
func template(t *testing.T, chart, namespace string, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := helm(t, "template", "x", chart, "--namespace", namespace, "--kube-version", "1.36.0", "-f", chart+"/example-values.yaml", "-f", file)
	require.NoError(t, err, out)
	return out
}

// kubernetesObjects decodes helm's output. It omits cert-manager's objects, hooks, and the
// Prometheus operator's objects, whose types are in another module (admission).
func kubernetesObjects(t *testing.T, text string) (objects []object) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if !strings.Contains(doc, "apiVersion: monitoring.coreos.com/") && !strings.Contains(doc, "apiVersion: cert-manager.io/") && !strings.Contains(doc, "helm.sh/hook: ") {
			found, err := decode("chart", []byte(doc))
			require.NoError(t, err, doc)
			objects = append(objects, found...)
		}
	}
	return objects
}

// rendered returns the objects of the driver's chart.
func rendered(t *testing.T, values map[string]any) []object {
	t.Helper()
	return kubernetesObjects(t, template(t, chart, namespace, values))
}

// canonical returns an object as a value that does not depend on the order of named items or on the
// format of JSON strings.
func canonical(t *testing.T, o object) any {
	t.Helper()
	text, err := json.Marshal(o.Object)
	require.NoError(t, err)
	var value any
	require.NoError(t, json.Unmarshal(text, &value))
	return sorted(value)
}

func sorted(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			v[key] = sorted(item)
		}
	case []any:
		for i := range v {
			v[i] = sorted(v[i])
		}
		key := func(item any) string {
			o, _ := item.(map[string]any)
			return cmp.Or(fmt.Sprint(o["mountPath"], o["name"]), fmt.Sprint(item)) + fmt.Sprint(item)
		}
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(key(a), key(b)) })
		return slices.CompactFunc(v, func(a, b any) bool { return assert.ObjectsAreEqual(a, b) }) // a component may add a flag twice
	case string:
		var inner any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &inner) == nil {
			return sorted(inner)
		}
	}
	return v
}

// TestChartEqualsKustomize renders the chart and the manifests with each option, because the chart
// must contain the same objects as the tested manifests.
func TestChartEqualsKustomize(t *testing.T) {
	for name, c := range map[string]struct {
		values     map[string]any
		components []string
	}{
		"plain":             {nil, nil},
		"self-registration": {map[string]any{"node": map[string]any{"selfRegistration": true}}, []string{"self-registration"}},
		"node-lifecycle":    {map[string]any{"node": map[string]any{"lifecycle": true}}, []string{"node-lifecycle"}},
		"k0s":               {map[string]any{"node": map[string]any{"kubeletRoot": "/var/lib/k0s/kubelet"}}, []string{"kubelet-root/k0s"}},
		"microk8s and all":  {map[string]any{"zones": true, "node": map[string]any{"kubeletRoot": "/var/snap/microk8s/common/var/lib/kubelet", "lifecycle": true}}, []string{"node-lifecycle", "kubelet-root/microk8s", "zones"}},
		"zones":             {map[string]any{"zones": true}, []string{"zones"}},
		"storage capacity":  {map[string]any{"storageCapacity": true}, []string{"storage-capacity"}},
		"group snapshots":   {map[string]any{"groupSnapshots": true}, []string{"group-snapshots"}},
		"replication":       {map[string]any{"replication": true}, []string{"replication"}},
		"both with a token": {map[string]any{"replication": true, "node": map[string]any{"lifecycle": true}}, []string{"node-lifecycle", "replication"}},
		"snapshot metadata": {map[string]any{"snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "replace this"}}, []string{"snapshot-metadata"}},
		"class secrets":     {map[string]any{"classSecrets": []any{map[string]any{"name": "spdkcsi-host-keys"}}}, []string{"class-secrets"}},
		"no password":       {map[string]any{"credentials": map[string]any{"serviceAccountToken": true}}, []string{"service-account-token"}},
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := kustomize(t, c.components...)
			want = slices.DeleteFunc(want, func(o object) bool { return o.kind() == "Namespace" })        // created before the chart is installed
			values := map[string]any{"ca": map[string]any{"certificates": "", "configMap": "spdkcsi-ca"}} // created manually
			maps.Copy(values, c.values)
			got := rendered(t, values)
			names := func(objects []object) (all []string) {
				for _, o := range objects {
					all = append(all, o.kind()+"/"+o.meta.GetNamespace()+"/"+o.meta.GetName())
				}
				slices.Sort(all)
				return all
			}
			require.Equal(t, names(want), names(got))
			for _, w := range want {
				i := slices.IndexFunc(got, func(g object) bool { return g.kind() == w.kind() && g.meta.GetName() == w.meta.GetName() })
				assert.Equal(t, canonical(t, w), canonical(t, got[i]), "%s %s", w.kind(), w.meta.GetName())
			}
		})
	}
}

// The options in this test exist only in the chart, not in the manifests.
func TestChartValuesTakeEffect(t *testing.T) {
	objects := rendered(t, map[string]any{
		"image":            map[string]any{"repository": "registry.example/spdk-csi", "tag": "v9"},
		"imagePullSecrets": []string{"pull"},
		"config":           map[string]any{"placement": map[string]any{"candidates": 3}},
		"ca":               map[string]any{"certificates": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"},
		"credentials":      map[string]any{"existingSecret": "mine", "accounts": []any{}},
		"controller":       map[string]any{"replicas": 3, "extraArgs": []string{"--log-format=json"}},
		"node":             map[string]any{"requiredTransports": []string{"nvme-tcp", "iscsi"}, "maxVolumes": 40, "extraArgs": []string{"--nvme-keep-alive=7s"}, "extraVolumes": []any{map[string]any{"name": "more", "hostPath": map[string]any{"path": "/srv"}}}, "extraVolumeMounts": []any{map[string]any{"name": "more", "mountPath": "/more"}}},
		"storageClass":     map[string]any{"default": true, "reclaimPolicy": "Retain", "name": "fast"},
		"snapshotClass":    map[string]any{"create": false},
	})
	pod := daemonSet(t, objects).Spec.Template.Spec
	c := pod.Containers[0]
	accepts(t, c)
	assert.Equal(t, "registry.example/spdk-csi:v9", c.Image)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.ImagePullSecrets)
	assert.Equal(t, "nvme-tcp,iscsi", arg(c, "--required-transports"))
	assert.Equal(t, "40", arg(c, "--max-volumes-per-node"))
	assert.Equal(t, "7s", arg(c, "--nvme-keep-alive"))
	assert.Equal(t, "/srv", mountAt(pod, "/more").source.HostPath.Path)
	config := find[*corev1.ConfigMap](t, objects, "spdkcsi-cm").Data["config.json"]
	assert.Contains(t, config, `"candidates": 3`)
	assert.Contains(t, config, `"storage-1"`)
	assert.Contains(t, find[*corev1.ConfigMap](t, objects, "spdkcsi-ca").Data["ca.crt"], "BEGIN CERTIFICATE")
	class := find[*storagev1.StorageClass](t, objects, "fast")
	assert.Equal(t, "mine", class.Parameters[prefix+"provisioner-secret-name"])
	assert.Equal(t, "true", class.Annotations["storageclass.kubernetes.io/is-default-class"])
	assert.Equal(t, "get", flatten(t, find[*rbacv1.Role](t, objects, "spdkcsi-controller-role").Rules)["secrets named mine"])
	controllerPod := find[*appsv1.Deployment](t, objects, "spdkcsi-controller").Spec.Template.Spec
	assert.Equal(t, "mine", mountAt(controllerPod, "/etc/spdkcsi-secret").source.Secret.SecretName)
	accepts(t, controllerPod.Containers[0])
	for _, o := range objects {
		assert.NotEqual(t, "Secret", o.kind(), "the user's own is used")
		assert.NotEqual(t, "VolumeSnapshotClass", o.kind())
	}
}

func TestChartRejectsInvalidValues(t *testing.T) {
	for name, c := range map[string]struct{ value, says string }{
		"an unknown key":             {"node.kubeletroot=/x", "kubeletroot"},
		"a path with a slash":        {"node.kubeletRoot=/x/", "kubeletRoot"},
		"an unknown transport":       {"node.requiredTransports={tcp}", "requiredTransports"},
		"no storage servers":         {"storageServers=null", "storageServers"},
		"a server without account":   {"storageServers[1].name=storage-2,storageServers[1].rpcURL=https://x,storageServers[1].targetType=iscsi", "storage server storage-2 has no account"},
		"no certificates":            {"ca.certificates=null", "set ca.certificates"},
		"no credentials":             {"credentials.accounts=null", "credentials"},
		"an unknown key of a server": {"storageServers[0].targetaddr=192.0.2.1", "targetaddr"},
		"an unknown key of config":   {"config.placement.candidate=3", "candidate"},
		"an unknown I/O limit":       {"volumeAttributesClasses[0].name=x,volumeAttributesClasses[0].parameters.iops=\"1\"", "iops"},
		"PodMonitors without token":  {"metrics.podMonitor=true", "metrics.tokenSecret"},
		"no port of the API server":  {"networkPolicy.apiServer.ports=null,networkPolicy.create=true", "ports"},
		"a name in all namespaces":   {"classSecrets[0].name=x,classSecrets[0].namespaces={*,a}", "classSecrets"},
		"no authority for metadata":  {"snapshotMetadata.enabled=true", "snapshotMetadata.caCertificate is missing"},
		"a wrong reclaim policy":     {"storageClass.reclaimPolicy=Recycle", "reclaimPolicy"},
		"no replicas":                {"controller.replicas=0", "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, "template", "x", chart, "-f", chart+"/example-values.yaml", "--kube-version", "1.36.0", "--set", c.value)
			require.Error(t, err, out)
			assert.Contains(t, out, c.says)
		})
	}
	out, err := helm(t, "lint", "--strict", chart, "-f", chart+"/example-values.yaml")
	require.NoError(t, err, out)
}
