package dryrun

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// load returns a DryRun for a configuration without secrets.
func load(t *testing.T, text string) *DryRun {
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	d, err := Load(path, rpcschema.Default())
	require.NoError(t, err)
	return d
}

const example = `
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

func TestUnmetExpectationsAreReported(t *testing.T) {
	d := load(t, example)
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
	failures, err := d.Check(rows, rpcschema.MustRelease("v26.05"))
	require.NoError(t, err)
	assert.Equal(t, []Failure{
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
		"[]":                                   "the table has no rows",
		"a: b":                                 "must be a list",
		"- {who: a, cal: b, expect: allow}":    "did you mean call?",
		"- {who: a, call: b, expect: allowed}": "line 1: expect must be allow or deny",
		"- {who: a, expect: allow}":            "line 1: who and call must be set",
		"- {who: a, who: b, expect: allow}":    "already occurs in line 1",
		"- {who: a, call: b, expect: allow}\n---": "a second document",
	} {
		_, err := ReadTable([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
	d := load(t, example)
	for text, says := range map[string]string{
		"- {who: raeder, call: bdev_get_bdevs, expect: allow}":                              `line 1: there is no user "raeder": did you mean reader?`,
		"- {who: reader, call: bdev_get_bdev, expect: allow}":                               "did you mean bdev_get_bdevs?",
		"- {who: reader, call: bdev_get_bdevs, params: [a], expect: allow}":                 "params must be a mapping",
		"- {who: reader, call: bdev_get_bdevs, params: {name: 2026-01-01}, expect: allow}":  "JSON has no such value",
		"- {who: reader, call: bdev_get_bdevs, params: {timeout: 0x10}, expect: allow}":     "JSON has no such value",
		"- {who: reader, call: bdev_get_bdevs, params: {name: a, name: b}, expect: allow}":  "occurs twice",
		"- {who: reader, call: bdev_get_bdevs, params: {a: &x b, name: *x}, expect: allow}": "do not use aliases",
	} {
		rows, err := ReadTable([]byte(text))
		require.NoError(t, err, text)
		_, err = d.Check(rows, rpcschema.Release{})
		require.ErrorContains(t, err, says, text)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	_, err := Load(path, rpcschema.Default())
	require.ErrorContains(t, err, "there is no configuration at "+path)
	for text, says := range map[string][]string{
		"usres: []": {"did you mean users?"},
		// Load reports all mistakes together.
		"users: [{name: a, roles: [none]}]\ntenants: {t: {quota: {volumes: 0}}}": {`has role "none"`, "quota.volumes"},
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err = Load(path, rpcschema.Default())
		require.ErrorContains(t, err, path+": ")
		for _, what := range says {
			require.ErrorContains(t, err, what)
		}
	}
}

// The result contains the rule that led to the decision: a rule of a role, the tenant or the
// schema.
func TestResultNamesTheDecidingRule(t *testing.T) {
	d := load(t, example)
	release := rpcschema.MustRelease("v26.05")
	team, err := d.User("team")
	require.NoError(t, err)
	c, err := d.Call(team, "nvmf_create_transport", nil, false, release)
	require.NoError(t, err)
	assert.True(t, c.Foreign)
	assert.False(t, c.Allowed())
	assert.Equal(t, "tenant a", c.Rule())
	assert.NotEmpty(t, c.Standing)
	assert.Len(t, d.Users(), 4)
	assert.False(t, d.Policy().Decide("small", "bdev_lvol_create").Refused())

	small, err := d.User("small")
	require.NoError(t, err)
	c, err = d.Call(small, "bdev_lvol_create", map[string]any{"lvol_name": "v", "lvs_name": "l"}, true, release)
	require.NoError(t, err)
	require.Error(t, c.Invalid)
	assert.Equal(t, "the schema", c.Rule())
}
