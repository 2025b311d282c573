// Package systemd holds the service's unit and its example configuration; there
// is no program in it but this test.
package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const service = "spdk-proxy.service"

func options(t *testing.T) map[string][]string {
	f, err := os.Open(service)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	list, err := unit.DeserializeOptions(f)
	require.NoError(t, err)
	values := map[string][]string{}
	for _, o := range list {
		values[o.Section+"/"+o.Name] = append(values[o.Section+"/"+o.Name], o.Value)
	}
	return values
}

func TestUnit(t *testing.T) {
	o := options(t)
	for key, want := range map[string]string{
		"Service/Type": "notify", "Service/NoNewPrivileges": "yes", "Service/ProtectSystem": "strict", "Service/CapabilityBoundingSet": "",
		"Service/LoadCredential": "secrets:/etc/spdk-proxy/secrets", "Service/StateDirectory": "spdk-proxy",
		"Service/PrivateTmp": "no", // or /var/tmp/spdk.sock cannot be seen
	} {
		assert.Equal(t, []string{want}, o[key], key)
	}
	require.Len(t, o["Service/ExecStart"], 1)
	assert.True(t, strings.HasSuffix(o["Service/ExecStart"][0], "/spdk-proxy serve --config /etc/spdk-proxy/spdk-proxy.yaml"))
	for _, family := range []string{"AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK"} {
		assert.Contains(t, strings.Fields(o["Service/RestrictAddressFamilies"][0]), family)
	}
}

// What the unit and the example configuration say of each other must fit.
func TestUnitAndConfigurationFit(t *testing.T) {
	o := options(t)
	text, err := os.ReadFile("spdk-proxy.yaml")
	require.NoError(t, err)
	var config struct {
		TLS struct {
			Dir string `yaml:"self_signed_dir"`
		} `yaml:"tls"`
		Users []struct {
			File string `yaml:"password_hash_file"`
		} `yaml:"users"`
		Limits struct{ Drain time.Duration } `yaml:"limits"`
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	assert.Equal(t, "/var/lib/"+o["Service/StateDirectory"][0], config.TLS.Dir)
	stop, err := time.ParseDuration(o["Service/TimeoutStopSec"][0] + "s")
	require.NoError(t, err)
	assert.Greater(t, stop, config.Limits.Drain)
	credential, _, _ := strings.Cut(o["Service/LoadCredential"][0], ":")
	require.NotEmpty(t, config.Users)
	for _, u := range config.Users {
		assert.True(t, strings.HasPrefix(u.File, "$CREDENTIALS_DIRECTORY/"+credential+"_"), u.File)
	}
}

// systemd's own opinion, where it is installed.
func TestSystemdAnalyze(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text, err := os.ReadFile(service)
	require.NoError(t, err)
	dir := t.TempDir()
	path := filepath.Join(dir, service)
	// It insists on a program that exists.
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), "/usr/bin/spdk-proxy ", os.Args[0]+" ", 1)), 0o600))
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", path).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.NotContains(t, string(out), service, "no complaint about this unit")

	out, err = exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=20", path).CombinedOutput()
	require.NoError(t, err, "exposure above 2.0:\n%s", out)
}
