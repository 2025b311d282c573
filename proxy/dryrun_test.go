package proxy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// The example roles in the manual lead to the decisions in the manual's table.
func TestExampleRolesLeadToTheDocumentedDecisions(t *testing.T) {
	text := documented(t, "docs/authorization.md", "Custom roles", "yaml")[0]
	table := documented(t, "docs/authorization.md", "Test a policy", "yaml")[0]
	rows, err := dryrun.ReadTable([]byte(table))
	require.NoError(t, err)
	require.Greater(t, len(rows), 8)
	r, err := dryrun.Load(write(t, text), rpcschema.Default())
	require.NoError(t, err)
	for _, release := range []string{"v23.01", "v26.05"} {
		fitting := rows
		if release == "v23.01" {
			fitting = nil // this release lacks some of the parameters
			for _, row := range rows {
				if row.Call != "bdev_get_iostat" {
					fitting = append(fitting, row)
				}
			}
		}
		failures, err := r.Check(fitting, rpcschema.MustRelease(release))
		require.NoError(t, err)
		assert.Empty(t, failures, release)
	}

	// The example configuration and the files that it names are valid.
	passwords := map[string]string{}
	for _, u := range r.Users() {
		passwords[u.Name] = adminPassword
	}
	handOver(t, passwords)
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	_, err = loadAndCheck(path)
	require.NoError(t, err)
}

func TestDryRunDecidesLikeTheProxy(t *testing.T) {
	b := newBench(t, "v26.05", withRoles(t, smallRole, map[string][]string{"small": {"small"}, "reader": {"read-only"}}))
	r, err := dryrun.New(b.config, rpcschema.Default())
	require.NoError(t, err)
	for _, user := range []string{"small", "reader"} {
		u, err := r.User(user)
		require.NoError(t, err)
		for method, params := range map[string]map[string]any{
			"bdev_malloc_create": decodeObject(t, `{"name":"s1","num_blocks":100,"block_size":512}`),
			"bdev_get_bdevs":     {},
			"bdev_get_iostat":    {"reset_mode": "all"},
			"spdk_get_version":   nil,
		} {
			c, err := r.Call(u, method, params, true, rpcschema.MustRelease("v26.05"))
			require.NoError(t, err)
			text := ""
			if params != nil {
				text = encode(t, params)
			}
			status := 403
			if c.Allowed() {
				status = 200
			}
			b.as(t, user, method, text, status)
			assert.Equal(t, c.Rule(), b.lastCall()["rule"], "%s %s", user, method)
		}
	}
}
