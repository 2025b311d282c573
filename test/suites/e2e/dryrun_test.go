//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestManifestsAreValid(t *testing.T) {
	n := parallelNamespace(t, "the API server accepts every object of both charts and of the manifests, with all options, in a strict dry run")
	all := map[string]string{}
	components := []string{""}
	manifests := os.DirFS(filepath.Join(repository, "deploy/kubernetes"))
	for _, pattern := range []string{"components/*/kustomization.yaml", "components/*/*/kustomization.yaml"} {
		found, err := fs.Glob(manifests, pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		components = append(components, found...)
	}
	for _, c := range components {
		all["manifests "+c] = n.kustomize(path.Dir(c))
	}
	for name, chart := range map[string]struct{ path, values string }{
		"chart spdk-csi": {"deploy/helm/spdk-csi", `{zones: true, storageCapacity: true, groupSnapshots: true, node: {lifecycle: true, requiredTransports: [nvme-tcp], maxVolumes: 50},
  networkPolicy: {create: true, apiServer: {ports: [6443]}}, snapshotMetadata: {enabled: true, caCertificate: c}, metrics: {tokenSecret: m, podMonitor: true, rules: true, dashboards: true}}`},
		"chart spdk-proxy": {"deploy/helm/spdk-proxy", `{localSocket: {dir: /run/rpc}, networkPolicy: {create: true}, metrics: {podMonitor: true, userSecret: m, serverName: storage, rules: true, dashboards: true}}`},
	} {
		values := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(values, []byte(chart.values), 0o600))
		folder := filepath.Join(repository, chart.path)
		text, err := env.driver.helmIn(t.Context(), n.name, "template", "tried", folder, "--values="+filepath.Join(folder, "example-values.yaml"), "--values="+values)
		require.NoError(t, err)
		all[name] = text
	}
	// the chart's two pods need these accounts
	for _, account := range []string{"controller", "uninstall"} {
		n.run("create", "serviceaccount", n.name+"-"+account+"-sa")
	}
	objects, skipped := 0, map[string]bool{}
	for name, text := range all {
		var known []string
		for object := range strings.SplitSeq(text, "\n---\n") {
			switch group := missingGroup(object); {
			case group != "":
				skipped[group] = true
			case strings.Contains(object, "kind: "):
				known = append(known, object)
			}
		}
		objects += len(known)
		// The objects are renamed, because the driver's own objects already exist, and some of
		// their fields are immutable.
		renamed := strings.NewReplacer("spdkcsi", n.name, driverName, n.name+".example").Replace(strings.Join(known, "\n---\n"))
		_, err := n.kubectl.Run(context.Background(), renamed, "apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-")
		assert.NoError(t, err, name)
	}
	n.figure("%d objects, without those in %d API groups whose CRDs are not installed", objects, len(skipped))
}

// missingGroup returns the API group of an object of the Prometheus operator or of cert-manager.
// The cluster does not have the CRDs of these two projects.
func missingGroup(object string) string {
	for _, g := range []string{"monitoring.coreos.com", "cert-manager.io"} {
		if strings.Contains(object, "apiVersion: "+g+"/") {
			return g
		}
	}
	return ""
}

// kustomize renders the manifests with a component, or without one if the path is ".".
func (n *namespace) kustomize(component string) string {
	n.t.Helper()
	dir := n.t.TempDir() // kustomize requires relative paths
	require.NoError(n.t, os.CopyFS(filepath.Join(dir, "base"), os.DirFS(filepath.Join(repository, "deploy/kubernetes"))))
	kustomization := map[string]any{"resources": []string{"base"}}
	if component != "." {
		kustomization["components"] = []string{"base/" + component}
	}
	text, err := json.Marshal(kustomization)
	require.NoError(n.t, err)
	require.NoError(n.t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o644))
	return n.run("kustomize", dir)
}
