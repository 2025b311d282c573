//go:build kubernetes

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHelmTestPasses(t *testing.T) {
	// The check would also report volumes that other tests are deleting as orphans, so wait for the
	// deletions.
	require.NoError(t, deletions.Wait())
	n := newNamespace(t, "`helm test` passes")
	_, err := env.driver.runHelm(t.Context(), "test", release, rolloutTimeout)
	require.NoError(t, err)
	n.figure("checks the storage servers")
}

// The test follows the steps in deploy/kubernetes/README.md. At the end, it installs the chart
// again.
func TestKustomizeInstallsAndDeletesTheDriver(t *testing.T) {
	n := newNamespace(t, "helm does not uninstall the chart while volumes exist; the chart is uninstalled with --no-hooks, which leaves nothing but volumes, and the manifests are installed under a running pod, which keeps its volume; `kubectl delete -k` leaves volumes and claims, and nothing else; a driver that is installed later deletes a volume whose claim was deleted meanwhile")
	require.NoError(t, deletions.Wait(), "without a driver, volumes of earlier tests would stay")
	n.apply(claim("kept", storageClass, "64Mi", ""))
	n.apply(claim("deleted", storageClass, "64Mi", ""))
	n.apply(pod("first", "kept"))
	n.bound("deleted")
	n.ready("first")
	written := n.write("first", "/volume/file")
	deleted := n.volume("deleted")

	manifests := n.editedManifests()
	install := func(ctx context.Context) error {
		return errors.Join(env.driver.chart(ctx, "install", env.driver.values()), env.driver.inService(ctx))
	}
	installed := false
	t.Cleanup(func() {
		if !installed {
			env.run(t, "delete", "--ignore-not-found", "--kustomize="+manifests, rolloutTimeout)
			require.NoError(t, install(context.Background()))
		}
	})
	err := env.driver.uninstall(t.Context())
	require.ErrorContains(t, err, "Nothing was uninstalled: delete the claims and VolumeSnapshots first", "helm prints the log of the check")
	require.ErrorContains(t, err, "2 PersistentVolumes (")
	require.NoError(t, env.driver.inService(t.Context()), "the check failed before anything was deleted")
	require.NoError(t, env.driver.uninstall(t.Context(), "--no-hooks"))
	assert.Equal(t, written, n.sum("first", "/volume/file"), "without a driver")

	start := time.Now()
	env.run(t, "apply", "--filename="+filepath.Join(manifests, "namespace.yaml"))
	env.run(t, "create", "configmap", "spdkcsi-ca", "--from-literal=ca.crt="+env.driver.server.CA())
	env.run(t, "apply", "--kustomize="+manifests)
	require.NoError(t, env.driver.inService(t.Context()))
	n.figure("manifests in service after %.1f s", time.Since(start).Seconds())
	n.run("delete", "pod", "first")
	n.apply(pod("second", "kept"))
	n.ready("second")
	assert.Equal(t, written, n.sum("second", "/volume/file"))

	// The check in the manual reports that volumes exist.
	assert.NotEmpty(t, n.run("get", "pv", `--output=jsonpath={.items[?(@.spec.csi.driver=="`+driverName+`")].metadata.name}`))
	n.run("delete", "pod", "second")
	n.awaitAdmitted("kept")
	start = time.Now()
	env.run(t, "delete", "--kustomize="+manifests, rolloutTimeout)
	n.figure("deleted in %.1f s", time.Since(start).Seconds())
	require.NoError(t, env.driver.gone(t.Context()))
	assert.Empty(t, n.run("get", "namespace", driverNamespace, "--ignore-not-found", "--output=name"))
	for _, node := range env.cluster.Nodes {
		require.NoError(t, filepath.WalkDir(node.Disk("/var/lib/kubelet/plugins/"+driverName), func(path string, d fs.DirEntry, err error) error {
			assert.True(t, err != nil || d.IsDir() || filepath.Base(filepath.Dir(path)) == "used", "%s is left on %s", path, node.Name)
			return err
		}))
	}
	assert.Equal(t, "Bound", n.run("get", "pvc", "kept", "--output=jsonpath={.status.phase}"))

	n.apply(pod("third", "kept"))
	n.run("delete", "pvc", "deleted")
	n.await("pv/"+deleted, "jsonpath={.status.phase}=Released")
	assert.Len(t, n.objects(n.volume("kept"), deleted), 2, "on the storage server")
	require.NoError(t, install(t.Context()))
	installed = true
	start = time.Now()
	n.await("pv/"+deleted, "delete")
	n.ready("third")
	n.figure("%.1f s after the driver was back, the deleted volume was gone and a waiting pod ran", time.Since(start).Seconds())
	assert.Equal(t, written, n.sum("third", "/volume/file"))
}

// editedManifests returns a copy of the manifests with the tests' storage server and the other
// changes in [driver.values].
func (n *namespace) editedManifests() string {
	n.t.Helper()
	dir := filepath.Join(n.t.TempDir(), "kubernetes")
	require.NoError(n.t, os.CopyFS(dir, os.DirFS(filepath.Join(repository, "deploy/kubernetes"))))
	replaceObject := func(file, kind, name, key string, content any) {
		inner, err := json.Marshal(content)
		require.NoError(n.t, err)
		data := "data"
		if kind == "Secret" {
			data = "stringData"
		}
		text, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "namespace": driverNamespace}, data: map[string]any{key: string(inner)},
		})
		require.NoError(n.t, err)
		require.NoError(n.t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
	replaceObject("config-map.yaml", "ConfigMap", "spdkcsi-cm", "config.json", map[string]any{"nodes": []any{env.driver.server.Config(caFile)}})
	replaceObject("secret.yaml", "Secret", driverSecret, "secret.json", map[string]any{"rpcTokens": []any{env.driver.server.Account()}})
	file := filepath.Join(dir, "kustomization.yaml")
	text, err := os.ReadFile(file)
	require.NoError(n.t, err)
	edited := strings.NewReplacer("components: []", "components:", "  # - components/self-registration ", "  - components/self-registration ").Replace(string(text))
	require.NotEqual(n.t, string(text), edited)
	require.NoError(n.t, os.WriteFile(file, []byte(edited+fmt.Sprintf(loopPatch, env.driver.data())), 0o600))
	return dir
}

// loopPatch lets the node plugin attach volumes as loop devices. It is appended to
// kustomization.yaml.
const loopPatch = `
patches:
  - target: {kind: DaemonSet, name: spdkcsi-node}
    patch: |-
      - {op: add, path: /spec/template/spec/containers/0/args/-, value: --node-allow-loop}
      - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: simulated-target, mountPath: %[1]q}}
      - {op: add, path: /spec/template/spec/volumes/-, value: {name: simulated-target, hostPath: {path: %[1]q, type: Directory}}}
`
