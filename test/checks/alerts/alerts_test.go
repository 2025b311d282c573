package alerts

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/spdkgate/spdkgate/test/tools/debian"
)

const alertRules = "../../../deploy/monitoring/spdk-proxy.rules.yaml"

var alertTests = []string{"../../../deploy/monitoring/spdk-proxy.rules.test.yaml", "../../../deploy/monitoring/spdk-proxy.rules.days.test.yaml"}

// promtool returns the path of Prometheus' promtool, which is either installed or unpacked from
// Debian's package into a cache.
func promtool(t *testing.T) string {
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	folder := filepath.Join(cache, "spdkgate", "promtool")
	program := filepath.Join(folder, "usr", "bin", "promtool")
	if _, err := os.Stat(program); err == nil {
		return program
	}
	require.NoError(t, os.MkdirAll(filepath.Dir(folder), 0o755))
	making, err := os.MkdirTemp(filepath.Dir(folder), "promtool-")
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(making) }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	deb, err := debian.DownloadAlone(ctx, making, "prometheus")
	if errors.Is(err, debian.ErrUnavailable) {
		t.Skipf("%v: install promtool", err)
	}
	require.NoError(t, err)
	root := filepath.Join(making, "root")
	require.NoError(t, debian.Unpack(ctx, root, deb))
	// a concurrent test may have created the directory
	if err := os.Rename(root, folder); !errors.Is(err, os.ErrExist) {
		require.NoError(t, err)
	}
	return program
}

// The alerts' unit tests pass, and each alert fires in at least one of them.
func TestEachAlertFiresInItsTest(t *testing.T) {
	program := promtool(t)
	for _, args := range [][]string{{"check", "rules", alertRules}, append([]string{"test", "rules"}, alertTests...)} {
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		require.NoError(t, err, "promtool %s: %s", args[0], out)
	}
	fires := map[string]bool{}
	for _, path := range alertTests {
		var tests struct {
			Tests []struct {
				Name  string
				Exprs []struct {
					Samples []struct{ Labels string } `json:"exp_samples"`
				} `json:"promql_expr_test"`
			}
		}
		decodeFile(t, path, &tests)
		for _, test := range tests.Tests {
			require.Len(t, test.Exprs, 2, test.Name)
			require.Empty(t, test.Exprs[0].Samples, test.Name)
			require.Len(t, test.Exprs[1].Samples, 1, test.Name)
			require.Contains(t, test.Exprs[1].Samples[0].Labels, `alertname="`+test.Name+`"`)
			fires[test.Name] = true
		}
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	decodeFile(t, alertRules, &rules)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			assert.True(t, fires[r.Alert], "%s has no unit test", r.Alert)
		}
	}
}

func decodeFile(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}
