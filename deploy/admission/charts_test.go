package admission

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/pod-security-admission/api"
	podsecurity "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// rendered returns the documents that helm rendered into $CHARTS. The keys are file names, which
// contain the chart's name and the options.
func rendered(t *testing.T) map[string][][]byte {
	folder := os.Getenv("CHARTS")
	if folder == "" {
		t.Skip("$CHARTS is not set: run go test ./deploy -run TestManifestsAreAdmitted, which renders the charts")
	}
	files, err := filepath.Glob(folder + "/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string][][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = bytes.Split(text, []byte("\n---\n"))
	}
	return all
}

// pod returns the pod that an object creates.
func pod(t *testing.T, doc []byte) (name string, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
	var o struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	require.NoError(t, yaml.Unmarshal(doc, &o))
	name = o.Kind + "/" + o.Name
	switch o.Kind {
	case "Pod":
		var p corev1.Pod
		require.NoError(t, yaml.UnmarshalStrict(doc, &p))
		return name, &p.ObjectMeta, &p.Spec
	case "Deployment":
		var d appsv1.Deployment
		require.NoError(t, yaml.UnmarshalStrict(doc, &d))
		return name, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec
	case "DaemonSet":
		var d appsv1.DaemonSet
		require.NoError(t, yaml.UnmarshalStrict(doc, &d))
		return name, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec
	case "Job", "CronJob", "StatefulSet", "ReplicaSet":
		require.FailNow(t, "add this kind", o.Kind)
	}
	return name, nil, nil
}

// violations lists how pods violate the Pod Security Standard "restricted", by chart and options.
// Pods that are not listed comply with it.
var violations = map[string][]string{
	"spdk-csi":               nodeService,
	"spdk-csi-everything":    nodeService,
	"spdk-csi-registration":  nodeService,
	"spdk-proxy":             {"hostPort", "restricted volume types", "runAsNonRoot != true", "runAsUser=0", "seLinuxOptions"},
	"spdk-proxy-on-the-host": {"hostPort", "host namespaces", "restricted volume types", "seLinuxOptions"},
}

var nodeService = []string{
	"privileged", "host namespaces", "hostPort", "probe or lifecycle host", "allowPrivilegeEscalation != false", "unrestricted capabilities",
	"restricted volume types", "runAsNonRoot != true", "runAsUser=0", "seLinuxOptions",
}

func TestPodsMeetTheSecurityStandard(t *testing.T) {
	evaluator, err := podsecurity.NewEvaluator(podsecurity.DefaultChecks(), nil)
	require.NoError(t, err)
	for chart, docs := range rendered(t) {
		pods := 0
		for _, doc := range docs {
			name, meta, spec := pod(t, doc)
			if spec == nil {
				continue
			}
			pods++
			var found []string
			for _, r := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, meta, spec) {
				if !r.Allowed {
					found = append(found, r.ForbiddenReason)
				}
			}
			slices.Sort(found)
			var needed []string
			if strings.HasPrefix(name, "DaemonSet/") {
				needed = violations[chart]
			}
			assert.ElementsMatch(t, needed, slices.Compact(found), "%s: %s", chart, name)
		}
		assert.NotZero(t, pods, chart)
	}
}

// The Prometheus operator's objects do not contain unknown fields, and contain the tested rules.
func TestPrometheusObjectsAreValid(t *testing.T) {
	found := map[string]int{}
	for chart, docs := range rendered(t) {
		for _, doc := range docs {
			var o metav1.TypeMeta
			require.NoError(t, yaml.Unmarshal(doc, &o))
			if !strings.HasPrefix(o.APIVersion, "monitoring.coreos.com/") {
				continue
			}
			assert.Equal(t, "monitoring.coreos.com/v1", o.APIVersion)
			found[o.Kind]++
			switch o.Kind {
			case "PodMonitor":
				var m monitoringv1.PodMonitor
				require.NoError(t, yaml.UnmarshalStrict(doc, &m), chart)
				assert.Equal(t, "prometheus", m.Labels["release"])
				assert.Equal(t, "app", m.Spec.JobLabel)
				selects(t, m, docs)
			case "PrometheusRule":
				var r monitoringv1.PrometheusRule
				require.NoError(t, yaml.UnmarshalStrict(doc, &r), chart)
				assert.Equal(t, "prometheus", r.Labels["release"])
				require.Len(t, r.Spec.Groups, 1)
				assert.True(t, strings.HasPrefix(chart, r.Spec.Groups[0].Name), chart)
				assert.Greater(t, len(r.Spec.Groups[0].Rules), 5)
			default:
				assert.Fail(t, "unexpected kind", o.Kind)
			}
		}
	}
	assert.Subset(t, slices.Collect(maps.Keys(found)), []string{"PodMonitor", "PrometheusRule"})
}

// selects checks that the monitor selects pods, and that the monitored ports exist.
func selects(t *testing.T, m monitoringv1.PodMonitor, docs [][]byte) {
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	require.NoError(t, err)
	var ports []string
	for _, doc := range docs {
		if _, meta, spec := pod(t, doc); spec != nil && selector.Matches(labels.Set(meta.Labels)) {
			for _, c := range spec.Containers {
				for _, p := range c.Ports {
					ports = append(ports, p.Name)
				}
			}
		}
	}
	require.NotEmpty(t, m.Spec.PodMetricsEndpoints)
	for _, e := range m.Spec.PodMetricsEndpoints {
		require.NotNil(t, e.Port)
		assert.Contains(t, ports, *e.Port, m.Name)
		if *e.Port == "metrics" || *e.Port == "https" { // the other ports belong to sidecars, which do not support authentication
			assert.True(t, e.Authorization != nil || e.BasicAuth != nil, m.Name)
		}
	}
}
