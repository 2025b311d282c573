//go:build kubernetes

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/test/suites/e2e/storage"
)

func TestProxyChartRunsWithoutCapabilities(t *testing.T) {
	n := parallelNamespace(t, "spdk-proxy's chart runs it beside a target, in a pod without capabilities: it accepts the right password and refuses a wrong one; helm uninstall leaves nothing behind")
	ctx, node := t.Context(), env.cluster.Nodes[0]
	certificate, key, ca, err := env.cluster.ServerCertificate("spdk-proxy", node.Address)
	require.NoError(t, err)
	n.run("create", "secret", "tls", "spdk-proxy-tls", "--cert="+certificate, "--key="+key)
	password := rand.Text()
	hash, err := env.driver.server.HashPassword(ctx, password)
	require.NoError(t, err)
	n.run("label", "node", node.Name, "spdkgate.io/storage-server=true")
	t.Cleanup(func() { n.run("label", "node", node.Name, "spdkgate.io/storage-server-") })
	values, err := json.Marshal(map[string]any{
		"hostNetwork": true, "port": 9019,
		"tls":    map[string]any{"secretName": "spdk-proxy-tls"},
		"target": map[string]any{"socketDir": filepath.Join(env.driver.dir, storageFolder)},
		"config": map[string]any{"users": []any{map[string]any{"name": "reader", "password_hash": hash, "roles": []string{"read-only"}}}},
	})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "values.json")
	require.NoError(t, os.WriteFile(file, values, 0o600))
	helm := func(args ...string) {
		_, err := env.driver.helmIn(context.Background(), n.name, args...)
		require.NoError(t, err)
	}
	helm("install", "spdk-proxy", filepath.Join(repository, "deploy/helm/spdk-proxy"), "--values="+file)
	// ready only if the target responds
	n.run("rollout", "status", "daemonset/spdk-proxy", rolloutTimeout)

	authority, err := os.ReadFile(ca)
	require.NoError(t, err)
	proxy := spdkrpc.HTTPSConfig{URL: "https://" + node.Address + ":9019/", Username: "reader", Password: password, CA: storage.Authorities(string(authority))}
	stores, err := storage.Stores(ctx, proxy)
	require.NoError(t, err)
	assert.Equal(t, []string{"lvs0"}, stores)
	proxy.Password = "wrong"
	_, err = storage.Stores(ctx, proxy)
	assert.ErrorIs(t, err, spdkrpc.Denied)

	helm("uninstall", "spdk-proxy", "--wait", rolloutTimeout)
	n.run("wait", "pods", "--all", "--for=delete", rolloutTimeout)
	assert.Equal(t, "secret/spdk-proxy-tls", n.run("get", "all,secret", "--output=name"))
}
