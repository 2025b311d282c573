package deploy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/spdkgate/spdkgate/proxy/authn/authntest"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// podFiles writes the files of the proxy's container below the directory root, and returns the path
// of the configuration. Paths in the configuration must be below mounted paths. The name of root
// must be short because the directory contains sockets.
func podFiles(t *testing.T, root string, objects []object, server tls.Certificate, more map[string]string) (config string) {
	t.Helper()
	text := configuration(t, objects)
	for _, m := range proxyPod(t, objects).Containers[0].VolumeMounts {
		require.NoError(t, os.MkdirAll(root+m.MountPath, 0o755))
		text = strings.ReplaceAll(text, `"`+m.MountPath+`/`, `"`+root+m.MountPath+`/`)
		text = strings.ReplaceAll(text, `"`+m.MountPath+`"`, `"`+root+m.MountPath+`"`)
	}
	for _, folder := range []string{`"/etc/`, `"/var/`, `"/run/`, `"/srv/`} {
		require.NotContains(t, strings.ReplaceAll(text, `"`+root, ""), folder, "not mounted")
	}
	if _, err := os.Stat(root + "/etc/spdk-proxy-tls"); err == nil {
		authntest.WritePair(t, root+"/etc/spdk-proxy-tls", "tls", server)
	}
	config = root + "/etc/spdk-proxy/spdk-proxy.yaml"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o440))
	for path, text := range more {
		require.NoError(t, os.WriteFile(root+path, []byte(text), 0o440))
	}
	return config
}

func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "p")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func serverCertificate(a *authntest.Authority) tls.Certificate {
	return a.Client(func(c *x509.Certificate) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	})
}

// The program accepts the chart's configuration without warnings.
func TestProxyChartConfigurationIsValid(t *testing.T) {
	authority := authntest.NewAuthority(t, "storage")
	hash := strings.TrimSpace(hashOf(t, "correct horse"))
	jwt := map[string]any{"issuer": "cluster", "subject": "system:serviceaccount:spdkcsi:spdkcsi-controller-sa"}
	for name, values := range map[string]map[string]any{
		"example":     nil,
		"self-signed": {"hostNetwork": true, "tls": map[string]any{"secretName": ""}},
		"IPv6":        {"listenAddress": "::"},
		"everything": {
			"clusterTokens": map[string]any{"enabled": true}, "runAsUser": 1000, "localSocket": map[string]any{"dir": "/run/rpc", "mode": "0660"},
			"tls": map[string]any{"clientCAConfigMap": "clients", "clientAuth": "required"},
			"config": map[string]any{
				"users": []any{
					map[string]any{"name": "admin", "password_hash_file": "admin.hash", "local": map[string]any{"users": []any{"0"}, "groups": []any{"4"}}, "roles": []any{"admin"}},
					map[string]any{"name": "csi", "jwt": jwt, "roles": []any{"csi-controller", "small"}},
					map[string]any{"name": "board", "certificate": map[string]any{"san_dns": "board.example"}, "roles": []any{"metrics"}},
					map[string]any{"name": "a", "token_hashes": []any{"sha256:" + strings.Repeat("a1", 32)}, "roles": []any{"csi-controller"}, "tenant": "a"},
				},
				"roles": map[string]any{"small": map[string]any{"extends": []any{"read-only"}, "allow": []any{
					"bdev_lvol_*", map[string]any{"method": "bdev_lvol_create", "where": map[string]any{"/size_in_mib": map[string]any{"minimum": 1, "maximum": 104857600}}},
				}, "deny": []any{"bdev_lvol_*_lvstore"}}},
				"tenants":       map[string]any{"a": map[string]any{"lvstores": []any{"lvs-a"}, "quota": map[string]any{"gib": 5000000, "volumes": 1}}},
				"limits":        map[string]any{"users_in_flight": map[string]any{"csi": 8}, "drain": "10s", "idle": "1m30s", "connections": 2000},
				"log":           map[string]any{"level": "warn", "format": "text"},
				"metrics":       map[string]any{"volumes": 2000, "latency_histograms": []any{"lvs-a/v1", "nvme0n1"}},
				"compatibility": map[string]any{"translate": false},
				"target":        map[string]any{"timeouts": map[string]any{"default": "1m", "methods": map[string]any{"bdev_lvol_inflate": "2h"}}, "snapshots_in_use": "freeze"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			more := map[string]string{}
			if name == "everything" {
				more = map[string]string{
					"/etc/spdk-proxy/admin.hash": hash, "/etc/spdk-proxy-client-ca/ca.crt": string(authority.PEM()),
					"/var/run/secrets/spdk-proxy-cluster/ca.crt": string(authority.PEM()), "/var/run/secrets/spdk-proxy-cluster/token": "token",
				}
			}
			config := podFiles(t, shortFolder(t), proxyRendered(t, values), serverCertificate(authority), more)
			out, err := exec.Command(binary(t, "spdk-proxy"), "check-config", config).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.NotContains(t, string(out), "warning")
			if name == "everything" {
				text, err := os.ReadFile(config)
				require.NoError(t, err)
				for _, kept := range []string{`"translate": false`, `"volumes": 2000`, `"lvs-a/v1"`, `"maximum": 104857600`, `"gib": 5000000`, `"snapshots_in_use": "freeze"`} {
					assert.Contains(t, string(text), kept)
				}
			}
		})
	}
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	cmd := exec.Command(binary(t, "spdk-proxy"), "hash-password")
	cmd.Stdin = strings.NewReader(password + "\n")
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// The proxy runs as the chart's pod specifies, once as the target's user and once as root without
// capabilities. kubelet's probes must succeed, and the proxy must save the configuration for a
// restart of the target.
func TestProxyChartServes(t *testing.T) {
	root, user := shortFolder(t), os.Getuid()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	values := map[string]any{"port": port, "runAsUser": user, "localSocket": map[string]any{"dir": "/run/rpc"}, "config": map[string]any{"users": []any{
		map[string]any{"name": "admin", "password_hash": strings.TrimSpace(hashOf(t, "correct horse")), "local": map[string]any{"users": []any{strconv.Itoa(user)}}, "roles": []any{"admin"}},
	}}}
	objects := proxyRendered(t, values)
	authority := authntest.NewAuthority(t, "storage")
	config := podFiles(t, root, objects, serverCertificate(authority), nil)
	target, err := spdktest.Start(spdktest.Options{Socket: root + "/run/spdk/spdk.sock", ExamineListed: true})
	require.NoError(t, err)
	defer func() { _ = target.Close() }()
	require.NoError(t, os.Chmod(target.Socket(), 0o700), "as SPDK's: open to its own user only")

	pod := proxyPod(t, objects)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run := func(args ...string) *exec.Cmd {
		args = append([]string{binary(t, "spdk-proxy")}, args...)
		if user == 0 { // other users have no capabilities by default
			args = append([]string{"setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"}, args...)
		}
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+root+environment(pod.Containers[0])["RUNTIME_DIRECTORY"])
		return cmd
	}
	var log strings.Builder
	serve := run(append(pod.Containers[0].Args, "--config", config)...)
	serve.Stderr = &log
	require.NoError(t, serve.Start())
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}}
	for _, probe := range []*corev1.Probe{pod.Containers[0].ReadinessProbe, pod.Containers[0].LivenessProbe} {
		url := fmt.Sprintf("%s://127.0.0.1:%d%s", strings.ToLower(string(probe.HTTPGet.Scheme)), port, probe.HTTPGet.Path)
		require.Eventually(t, func() bool {
			answer, err := client.Get(url)
			if err != nil {
				return false
			}
			_ = answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		}, time.Minute, 10*time.Millisecond, url)
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", serve.Process.Pid)); assert.NoError(t, err) {
		assert.Contains(t, string(status), "CapEff:\t0000000000000000", "the test must not give it more than the pod has")
	}
	for _, call := range []string{
		`"nvmf_create_transport", "params": {"trtype": "TCP"}`,
		`"spdkgate_key_add", "params": {"name": "k", "secret": "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"}`,
	} {
		request, err := http.NewRequest(http.MethodPost, fmt.Sprintf("https://127.0.0.1:%d/", port), strings.NewReader(`{"jsonrpc": "2.0", "id": 1, "method": `+call+`}`))
		require.NoError(t, err)
		request.SetBasicAuth("admin", "correct horse")
		answer, err := client.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		_ = answer.Body.Close()
		assert.Equal(t, http.StatusOK, answer.StatusCode)
		assert.NotContains(t, string(text), `"error"`, call)
	}
	local := spdkrpc.NewSocket(root + "/run/rpc/rpc.sock")
	defer func() { _ = local.Close() }()
	var transports []any
	require.NoError(t, local.Call(ctx, "nvmf_get_transports", nil, &transports), "as SPDK's own tools")
	assert.Len(t, transports, 1)
	out, err := run("reload").CombinedOutput()
	require.NoError(t, err, "%s", out)

	require.NoError(t, serve.Process.Signal(os.Interrupt))
	require.NoError(t, <-ended, log.String())
	saved, err := os.ReadFile(filepath.Join(root, "var/lib/spdk-proxy/target/current.json"))
	require.NoError(t, err, log.String())
	assert.Contains(t, string(saved), "nvmf_create_transport")
	assert.Contains(t, string(saved), root+"/var/lib/spdk-proxy/keys/", "the target reads the key at the same path")
	out, err = run("saved", "prepare", "--dir", root+"/var/lib/spdk-proxy/target").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
