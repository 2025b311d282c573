package proxy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// rehearsal is of a configuration whose secrets nobody has.
func rehearsal(t *testing.T, text string) *Rehearsal {
	r, err := NewRehearsal(write(t, text), rpcschema.Default())
	require.NoError(t, err)
	return r
}

// The manual's configuration is what its table says.
func TestTheDocumentedRoles(t *testing.T) {
	text := documented(t, "docs/authorization.md", "Roles of your own", "yaml")[0]
	table := documented(t, "docs/authorization.md", "Test a policy", "yaml")[0]
	rows, err := ReadTable([]byte(table))
	require.NoError(t, err)
	require.Greater(t, len(rows), 8)
	r := rehearsal(t, text)
	for _, release := range []string{"v23.01", "v26.05"} {
		fitting := rows
		if release == "v23.01" {
			fitting = nil // of which some parameters are not known to it
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

	// It is sound as a whole, with its files.
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

const rehearsed = `
users:
  - {name: reader, roles: [read-only]}
  - {name: team, roles: [csi-controller], tenant: a}
  - {name: new, learning: true}
  - {name: small, roles: [small]}
roles:
  small: {allow: [{method: bdev_lvol_create, where: {/size_in_mib: {maximum: 10}}}]}
tenants:
  a: {lvstores: [lvs-a]}
`

func TestTableFailures(t *testing.T) {
	r := rehearsal(t, rehearsed)
	rows, err := ReadTable([]byte(`
- {who: reader, call: bdev_get_bdevs, expect: deny}
- {who: reader, call: bdev_get_bdevs, expect: allow, rule: another}
- {who: reader, call: bdev_get_bdevs, params: {nam: x}, expect: allow}
- {who: team, call: nvmf_create_transport, expect: allow}
- {who: team, call: nvmf_create_transport, expect: deny, rule: tenant a}
- {who: new, call: bdev_lvol_delete, expect: allow}
- {who: small, call: bdev_lvol_create, expect: allow}
- {who: small, call: bdev_lvol_create, expect: deny}
- who: small
  call: bdev_lvol_create
  params: {lvol_name: v, lvs_name: l, size_in_mib: 18446744073709551615}
  expect: deny
- {who: small, call: bdev_lvol_create, params: {lvol_name: v, lvs_name: l, size: 10485761}, expect: allow}
`))
	require.NoError(t, err)
	failures, err := r.Check(rows, rpcschema.MustRelease("v26.05"))
	require.NoError(t, err)
	assert.Equal(t, []TableFailure{
		{2, "reader", "bdev_get_bdevs", "deny", "allow: role read-only: allow bdev_get_bdevs"},
		{3, "reader", "bdev_get_bdevs", "allow: another", "allow: role read-only: allow bdev_get_bdevs"},
		{4, "reader", "bdev_get_bdevs", "allow", "no call: /nam: bdev_get_bdevs has no such parameter: did you mean name?"},
		{5, "team", "nvmf_create_transport", "allow", "deny: tenant a"},
		{7, "new", "bdev_lvol_delete", "allow", "deny: no rule allows it"},
		{8, "small", "bdev_lvol_create", "allow", "open: it depends on the parameters: give params"},
		{9, "small", "bdev_lvol_create", "deny", "open: it depends on the parameters: give params"},
		{10, "small", "bdev_lvol_create", "deny", "no call: /size_in_mib: must be at most 17592186044415"},
		{14, "small", "bdev_lvol_create", "allow", "deny: no rule allows it with these parameters"},
	}, failures)
}

func TestTablesAreReadStrictly(t *testing.T) {
	for text, says := range map[string]string{
		"":                                     "empty",
		"[]":                                   "there are no rows",
		"a: b":                                 "must be a list",
		"- {who: a, cal: b, expect: allow}":    "did you mean call?",
		"- {who: a, call: b, expect: allowed}": "line 1: expect must be allow or deny",
		"- {who: a, expect: allow}":            "line 1: give who and call",
		"- {who: a, who: b, expect: allow}":    "stands in line 1 already",
		"- {who: a, call: b, expect: allow}\n---": "a second document",
	} {
		_, err := ReadTable([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
	r := rehearsal(t, rehearsed)
	for text, says := range map[string]string{
		"- {who: raeder, call: bdev_get_bdevs, expect: allow}":                              `line 1: there is no user "raeder": did you mean reader?`,
		"- {who: reader, call: bdev_get_bdev, expect: allow}":                               "did you mean bdev_get_bdevs?",
		"- {who: reader, call: bdev_get_bdevs, params: [a], expect: allow}":                 "params must be a mapping",
		"- {who: reader, call: bdev_get_bdevs, params: {name: 2026-01-01}, expect: allow}":  "JSON has no such value",
		"- {who: reader, call: bdev_get_bdevs, params: {timeout: 0x10}, expect: allow}":     "JSON has no such value",
		"- {who: reader, call: bdev_get_bdevs, params: {name: a, name: b}, expect: allow}":  "stands twice",
		"- {who: reader, call: bdev_get_bdevs, params: {a: &x b, name: *x}, expect: allow}": "write out what",
	} {
		rows, err := ReadTable([]byte(text))
		require.NoError(t, err, text)
		_, err = r.Check(rows, rpcschema.Release{})
		require.ErrorContains(t, err, says, text)
	}
}

// A rehearsal says what the proxy does.
func TestRehearsalsAreTrue(t *testing.T) {
	b := newBench(t, "v26.05", withRoles(t, smallRole, map[string][]string{"small": {"small"}, "reader": {"read-only"}}))
	may, err := newPolicy(b.config, rpcschema.Default())
	require.NoError(t, err)
	whose, err := newTenancy(b.config, rpcschema.Default(), nil)
	require.NoError(t, err)
	r := &Rehearsal{config: b.config, schema: rpcschema.Default(), policy: may, tenancy: whose}
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
