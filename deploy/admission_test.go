package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// chartCases contains the options with which TestManifestsAreAdmitted renders the charts. Each name
// begins with the chart's name.
var chartCases = map[string]map[string]any{
	"spdk-csi": nil,
	"spdk-csi-everything": {
		"zones": true, "storageCapacity": true, "groupSnapshots": true, "replication": true, "snapshotMetadata": map[string]any{"enabled": true, "caCertificate": "x"}, "node": map[string]any{"lifecycle": true}, "networkPolicy": map[string]any{"create": true},
		"metrics":     map[string]any{"tokenSecret": "metrics", "podMonitor": true, "rules": true, "dashboards": true, "labels": map[string]any{"release": "prometheus"}},
		"credentials": map[string]any{"serviceAccountToken": true},
	},
	"spdk-proxy": {
		"networkPolicy": map[string]any{"create": true}, "clusterTokens": map[string]any{"enabled": true},
		"metrics": map[string]any{
			"podMonitor": true, "userSecret": "prometheus", "serverName": "storage.example", "caSecret": "spdk-proxy-tls", "rules": true, "dashboards": true,
			"labels": map[string]any{"release": "prometheus"},
		},
	},
	"spdk-proxy-on-the-host": {"hostNetwork": true, "runAsUser": 1000, "runAsGroup": 1000},
	"spdk-csi-registration":  {"node": map[string]any{"selfRegistration": true}},
}

// The manifests pass an API server's checks: the admission policy for the node plugin's token, the
// Pod Security Standards for the charts' pods, and the Prometheus operator's objects. These checks
// are in a separate module because they need CEL and Kubernetes' admission library.
func TestManifestsAreAdmitted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make test-long")
	}
	noteFiles(t, "admission")
	folder := t.TempDir()
	for name, values := range chartCases {
		for _, chart := range charts {
			if strings.HasPrefix("helm/"+name, chart) {
				require.NoError(t, os.WriteFile(filepath.Join(folder, name+".yaml"), []byte(template(t, chart, namespace, values)), 0o600))
			}
		}
	}
	cmd := exec.Command("go", "test", "-count=1", ".")
	cmd.Dir = "admission"
	cmd.Env = append(os.Environ(), "CHARTS="+folder)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
