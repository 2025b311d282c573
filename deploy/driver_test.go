package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
)

// The driver accepts the contents of the ConfigMap.
func TestConfigIsAcceptedByTheDriver(t *testing.T) {
	cfg := loadConfig(t)
	require.NotEmpty(t, cfg.Nodes)
	for _, n := range cfg.Nodes {
		assert.True(t, strings.HasPrefix(n.RPCURL, "https://"), "users copy the example, which must encrypt passwords")
		require.NotEmpty(t, n.CAFile, "the example must show the path of the CA")
		m, v := controller(t).mount(t, "spdkcsi-controller", filepath.Dir(n.CAFile))
		assert.True(t, m.ReadOnly)
		assert.Equal(t, "spdkcsi-ca", v.ConfigMap.Name)
		assert.Equal(t, "ca.crt", filepath.Base(n.CAFile), "README.md tells users to create this key")
	}
}

func loadConfig(t *testing.T) *config.Config {
	t.Helper()
	cm := find[*corev1.ConfigMap](t, plain(t), "spdkcsi-cm")
	require.Len(t, cm.Data, 1)
	text := []byte(cm.Data[filepath.Base(config.Path)])
	cfg, err := config.Parse(text)
	require.NoError(t, err)
	return cfg
}

// The driver accepts the contents of the Secret, which contains an account for each storage server.
func TestSecretIsAcceptedByTheDriver(t *testing.T) {
	secret := find[*corev1.Secret](t, plain(t), "spdkcsi-secret")
	require.Len(t, secret.StringData, 1)
	path := filepath.Join(t.TempDir(), "secret.json")
	require.NoError(t, os.WriteFile(path, []byte(secret.StringData["secret.json"]), 0o600))
	t.Setenv(config.CredentialsEnv, path)
	loaded, err := config.CredentialsFile()
	require.NoError(t, err)
	assert.Equal(t, path, loaded)

	var content struct {
		RPCTokens []struct{ Name, Password string }
	}
	require.NoError(t, json.Unmarshal([]byte(secret.StringData["secret.json"]), &content))
	var accounts, servers []string
	for _, token := range content.RPCTokens {
		accounts = append(accounts, token.Name)
		assert.Equal(t, "REPLACE-ME", token.Password, "users would keep a password that looks usable")
	}
	for _, n := range loadConfig(t).Nodes {
		servers = append(servers, n.Name)
	}
	assert.ElementsMatch(t, servers, accounts)
}

// The manifests mount both files at the paths where the driver reads them.
func TestDriverFindsItsFiles(t *testing.T) {
	_, cfg := controller(t).mount(t, "spdkcsi-controller", filepath.Dir(config.Path))
	assert.Equal(t, "spdkcsi-cm", cfg.ConfigMap.Name)
	_, secret := controller(t).mount(t, "spdkcsi-controller", config.CredentialsDir)
	assert.Equal(t, "spdkcsi-secret", secret.Secret.SecretName)
	for _, c := range controller(t).pod.Containers {
		if c.Name != "spdkcsi-controller" {
			for _, m := range c.VolumeMounts {
				assert.Equal(t, "/csi", m.MountPath, "%s does not need this volume", c.Name)
			}
		}
	}
}

// The program accepts the arguments in the manifests, which select the controller or the node
// service.
func TestDriverFlagsAreAccepted(t *testing.T) {
	program := binary(t, "spdk-csi")
	for _, w := range workloads(t) {
		args := slices.Clone(w.container(t, w.name).Args)
		half, other := "--controller", "--node"
		if w.name == "spdkcsi-node" {
			half, other = other, half
		}
		assert.Contains(t, args, half)
		assert.NotContains(t, args, other)
		out, err := exec.Command(program, append(args, "--help")...).CombinedOutput()
		assert.NoError(t, err, "%s %v: %s", program, args, out)
		out, err = exec.Command(program, append(args, "--no-such-flag", "--help")...).CombinedOutput()
		assert.Error(t, err, "this test does not detect an unknown flag: %s", out)
	}
}

// The driver accepts the static volume's handle and attributes.
func TestStaticVolumeIsAccepted(t *testing.T) {
	pv := find[*corev1.PersistentVolume](t, examples(t), "spdkcsi-pv-static")
	server, lvol, ok := strings.Cut(pv.Spec.CSI.VolumeHandle, ":")
	require.True(t, ok)
	assert.True(t, slices.ContainsFunc(loadConfig(t).Nodes, func(n config.Target) bool {
		return n.Name == server && n.TargetAddr == pv.Spec.CSI.VolumeAttributes[connect.KeyTargetAddr]
	}))
	attached, err := connect.ParseExport(pv.Spec.CSI.VolumeAttributes, nil)
	require.NoError(t, err)
	assert.Equal(t, connect.TCP, attached.Transport)
	assert.Equal(t, lvol, attached.LegacyUUID)
	assert.Equal(t, export.NQN(lvol), attached.NQN, "the subsystem that the controller uses")
}

// section returns the part of a page under a heading.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, below, ok := strings.Cut(page, "\n"+heading+"\n")
	require.True(t, ok, heading)
	below, _, _ = strings.Cut(below, "\n## ")
	return below
}

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// The placement example in docs/csi-placement.md is a valid configuration. The table on that page
// lists the example's keys, with their defaults.
func TestDocumentedPlacementIsValid(t *testing.T) {
	page, err := os.ReadFile("../docs/csi-placement.md")
	require.NoError(t, err)
	text := section(t, string(page), "## Choose storage servers")
	example, err := config.Parse([]byte(jsonBlock.FindStringSubmatch(text)[1]))
	require.NoError(t, err)
	usual, err := config.Parse([]byte(`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`))
	require.NoError(t, err)
	assert.Equal(t, usual.Placement, example.Placement, "the example shows the defaults")
	defaults, err := json.Marshal(usual.Placement)
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(defaults, &keys))
	listed := map[string]any{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `?([^|`]+)`? \\|").FindAllStringSubmatch(text, -1) {
		listed[row[1]] = strings.TrimSpace(row[2])
	}
	require.Len(t, listed, len(keys))
	for key, value := range keys {
		assert.Equal(t, fmt.Sprint(value), listed[key], key)
	}
}
