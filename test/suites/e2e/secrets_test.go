//go:build kubernetes

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/spdkgate/spdkgate/test/suites/e2e/storage"
)

// dhchapKey is a key as `nvme gen-dhchap-key` generates it.
const dhchapKey = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"

// The test follows the steps in docs/host-authentication.md. The storage server has the type
// nvme-tcp. The nodes cannot connect to it; test/suites/kernel tests connections.
func TestHostAuthentication(t *testing.T) {
	n := newNamespace(t, "the manual's page about host authentication: without the value classSecrets, attaching fails and says so; with it, the storage server requires the Secret's key, and kubelet passes it to the node plugin; the same with a Secret in the claim's namespace")
	classSecrets, class := authenticationPage(t)
	second, values := n.keyedServer()
	node := env.cluster.Nodes[0].Name
	gen := "--from-literal=dhchap-key=" + dhchapKey
	env.run(t, "create", "secret", "generic", "spdkcsi-host-keys", gen)
	t.Cleanup(func() { env.run(t, "delete", "secret", "spdkcsi-host-keys") })
	n.apply(class)
	t.Cleanup(func() { n.run("delete", "storageclass", "spdkcsi-authenticated") })

	n.apply(claim("data", "spdkcsi-authenticated", "64Mi", ""))
	n.apply(onNode(node, pod("user", "data")))
	n.event("user", "FailedAttachVolume", `cannot get resource "secrets"`)
	values["classSecrets"] = classSecrets
	env.upgrade(t, values)
	start := time.Now()
	n.attaches("data", "user", second, node)
	n.figure("attached %.1f s after helm upgrade", time.Since(start).Seconds())

	n.run("delete", "pod", "user", "--grace-period=1")
	n.run("create", "secret", "generic", "own-keys", gen)
	n.apply(strings.NewReplacer("spdkcsi-host-keys", "own-keys", "-secret-namespace: spdkcsi", "-secret-namespace: ${pvc.namespace}", "name: spdkcsi-authenticated", "name: own").Replace(class))
	t.Cleanup(func() { n.run("delete", "storageclass", "own") })
	values["classSecrets"] = append(classSecrets, map[string]any{"name": "own-keys", "namespaces": []string{n.name}})
	env.upgrade(t, values)
	n.apply(claim("own", "own", "64Mi", ""))
	n.apply(onNode(node, pod("other", "own")))
	n.attaches("own", "other", second, node)
}

// attaches waits until a claim's volume is attached with a key, and until the node plugin has
// received the key and reported that the kernel does not support NVMe.
func (n *namespace) attaches(claim, pod string, server *storage.Server, node string) {
	n.t.Helper()
	n.eventually("volume "+claim+" is attached", func(ctx context.Context) error {
		attached, err := env.cluster.Kubectl().Run(ctx, "", "get", "volumeattachments", "--output=jsonpath={.items[?(@.spec.source.persistentVolumeName=='"+n.volume(claim)+"')].status.attached}")
		if err == nil && attached != "true" {
			err = fmt.Errorf("attached: %q", attached)
		}
		return err
	})
	authenticates, err := server.Authenticates(n.t.Context(), node)
	require.NoError(n.t, err)
	assert.True(n.t, authenticates, "the storage server requires the node's key")
	n.event(pod, "FailedMount", "nvme")
	messages := n.run("get", "events", "--field-selector=involvedObject.name="+pod+",reason=FailedMount", "--output=jsonpath={.items[*].message}")
	assert.NotContains(n.t, messages, "secret", "kubelet may read the Secret, which contains the key")
}

// authenticationPage returns the value classSecrets and the StorageClass of
// docs/host-authentication.md.
func authenticationPage(t *testing.T) (classSecrets []any, class string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "docs/host-authentication.md"))
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2)
	var values struct {
		ClassSecrets []any `json:"classSecrets"`
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(blocks[0][1]), &values))
	return values.ClassSecrets, strings.Replace(blocks[1][1], "parameters:\n", "parameters:\n  target: "+anotherServer+"\n", 1)
}

// keyedServer adds a storage server of type nvme-tcp until the test ends, and returns it with the
// chart's values.
func (n *namespace) keyedServer() (*storage.Server, map[string]any) {
	n.t.Helper()
	ctx := context.Background()
	second, err := env.driver.server.StartAnother(ctx, anotherServer, "9010", filepath.Join(env.driver.dir, storageFolder, "keyed"))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { assert.NoError(n.t, second.Stop()) })
	plain := env.driver.values()
	n.t.Cleanup(func() {
		n.run("delete", "pods", "--all", "--grace-period=1")
		n.run("delete", "pvc", "--all")
		n.eventually("the volumes are gone", func(ctx context.Context) error { return noVolumeOf(ctx, n.name) })
		objects, err := second.Objects(ctx)
		assert.NoError(n.t, err)
		assert.Empty(n.t, objects, "left on the second storage server")
		env.reconfigure(n.t, plain)
	})
	values := env.driver.values()
	other := second.Config(caFile)
	other["targetType"] = "nvme-tcp"
	delete(other, "loopDir")
	values["storageServers"] = []any{env.driver.server.Config(caFile), other}
	values["credentials"] = map[string]any{"accounts": []any{env.driver.server.Account(), second.Account()}}
	values["ca"] = map[string]any{"certificates": env.driver.server.CA() + second.CA()}
	env.reconfigure(n.t, values)
	return second, values
}

// The test follows the steps in docs/csi-storage-servers.md, both with the chart and after a manual
// change.
func TestProxyCertificateIsReplaced(t *testing.T) {
	n := newNamespace(t, "the proxy's certificate authority is replaced through the chart's values; after a change by kubectl apply, helm upgrade fails with a conflict, but succeeds with --force-conflicts")
	values := env.driver.values()
	t.Cleanup(func() { env.upgrade(t, values) })
	ca := func() string {
		return env.run(t, "get", "configmap", "spdkcsi-ca", "--output=jsonpath={.data.ca\\.crt}")
	}
	two := env.driver.values()
	two["ca"] = map[string]any{"certificates": env.driver.server.CA() + env.driver.server.CA()}
	env.upgrade(t, two)
	assert.Equal(t, 2, strings.Count(ca(), "BEGIN CERTIFICATE"))

	manifest := env.run(t, "create", "configmap", "spdkcsi-ca", "--from-literal=ca.crt="+env.driver.server.CA(), "--dry-run=client", "--output=yaml")
	_, err := env.driver.kubectl.Run(t.Context(), manifest, "apply", "--filename=-")
	require.NoError(t, err)
	err = env.driver.chart(t.Context(), "upgrade", two)
	require.ErrorContains(t, err, `conflict with "kubectl-client-side-apply"`)
	require.NoError(t, env.driver.chart(t.Context(), "upgrade", two, "--force-conflicts"))
	assert.Equal(t, 2, strings.Count(ca(), "BEGIN CERTIFICATE"))
	n.figure("Helm uses server-side apply")
}
