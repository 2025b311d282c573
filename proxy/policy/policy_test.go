package policy

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestDecisions(t *testing.T) {
	text, err := os.ReadFile("testdata/decisions.yaml")
	require.NoError(t, err)
	var table struct {
		Roles     map[string]Role
		Users     map[string][]string
		Decisions []struct {
			User, Method string
			Allowed      *bool
			Rule         string
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &table))
	p, err := New(table.Roles, table.Users, rpcschema.Default())
	require.NoError(t, err)
	require.NotEmpty(t, table.Decisions)
	for _, want := range table.Decisions {
		got := p.Decide(want.User, want.Method)
		assert.Equal(t, Decision{Allowed: *want.Allowed, Rule: want.Rule}, got, "%s calls %s", want.User, want.Method)
	}
}

func TestEveryMethodIsDeniedByDefault(t *testing.T) {
	p, err := New(map[string]Role{"r": {Deny: []string{"*"}, Allow: []string{"*"}}}, map[string][]string{"u": {"r"}}, rpcschema.Default())
	require.NoError(t, err)
	for _, m := range rpcschema.Default().Methods() {
		assert.False(t, p.Decide("u", m.Name).Allowed, m.Name)
		assert.Equal(t, Decision{Rule: NoRule}, p.Decide("other", m.Name))
	}
}

func TestNewRefuses(t *testing.T) {
	roles := func(allow, deny string) map[string]Role {
		r := Role{Allow: []string{"*"}}
		if allow != "" {
			r.Allow = []string{allow}
		}
		if deny != "" {
			r.Deny = []string{deny}
		}
		return map[string]Role{"ops": r}
	}
	for name, c := range map[string]struct {
		roles map[string]Role
		users map[string][]string
		says  string
	}{
		"misspelt name":        {roles("bdev_lvol_crate", ""), nil, `role ops: allow bdev_lvol_crate: unknown method "bdev_lvol_crate": did you mean bdev_lvol_create?`},
		"misspelt deny":        {roles("", "bdev_lvol_delte"), nil, "did you mean bdev_lvol_delete?"},
		"wrong case":           {roles("BDEV_*", ""), nil, "no method matches: `spdk-proxy call rpc_get_methods`"},
		"misspelt glob":        {roles("bdev_lvl_*", ""), nil, "role ops: allow bdev_lvl_*: no method matches: did you mean bdev_lvol_*?"},
		"glob of one":          {roles("spdk_get_versoin*", ""), nil, "did you mean spdk_get_version?"},
		"glob of nothing":      {roles("x*", ""), nil, "lists the names"},
		"unsound glob":         {roles("bdev_[", ""), nil, "globs know"},
		"deprecated name":      {roles("get_lvol_stores", ""), nil, "write bdev_lvol_get_lvstores"},
		"empty name":           {roles("", " "), nil, "unknown method"},
		"empty role":           {map[string]Role{"ops": {}}, nil, "role ops allows nothing"},
		"unknown role":         {roles("", ""), map[string][]string{"ann": {"storage"}}, `user ann has role "storage", which is not under roles: there are ops`},
		"role in another case": {roles("", ""), map[string][]string{"ann": {"Ops"}}, "did you mean ops?"},
		"no roles at all":      {nil, map[string][]string{"ann": {"ops"}}, "there are no roles"},
		"user without roles":   {roles("", ""), map[string][]string{"ann": nil}, "user ann has no roles"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(c.roles, c.users, rpcschema.Default())
			require.ErrorContains(t, err, c.says)
			assert.Nil(t, p)
		})
	}
}

func TestNewReportsEverything(t *testing.T) {
	_, err := New(map[string]Role{"a": {Allow: []string{"nope_1", "nope_2"}}, "b": {}}, map[string][]string{"u": {"c"}}, rpcschema.Default())
	for _, says := range []string{"nope_1", "nope_2", "role b", "user u"} {
		require.ErrorContains(t, err, says)
	}
}
