package policy

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// with returns users with these roles and no other properties.
func with(roles map[string][]string) map[string]User {
	users := map[string]User{}
	for name, list := range roles {
		users[name] = User{Roles: list}
	}
	return users
}

// parse reads roles from YAML, as in a configuration.
func parse(t testing.TB, text string) map[string]Role {
	var roles map[string]Role
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(&roles))
	return roles
}

func yamlDecode(text string, into any) error { return yaml.Unmarshal([]byte(text), into) }

func TestDecisionsMatchTheTable(t *testing.T) {
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
	p, err := New(table.Roles, with(table.Users), rpcschema.Default())
	require.NoError(t, err)
	require.NotEmpty(t, table.Decisions)
	for _, want := range table.Decisions {
		got := p.Decide(want.User, want.Method)
		assert.Equal(t, *want.Allowed, got.Allowed, "%s calls %s", want.User, want.Method)
		assert.Equal(t, want.Rule, got.Rule, "%s calls %s", want.User, want.Method)
	}
}

func TestEveryMethodIsDeniedByDefault(t *testing.T) {
	everything := []Rule{{Method: "*"}}
	p, err := New(map[string]Role{"r": {Deny: everything, Allow: everything}}, with(map[string][]string{"u": {"r"}}), rpcschema.Default())
	require.NoError(t, err)
	for _, m := range rpcschema.Default().Methods() {
		assert.True(t, p.Decide("u", m.Name).Refused(), m.Name)
		assert.Equal(t, Decision{Rule: NoRule}, p.Decide("other", m.Name))
	}
}

func TestInvalidPoliciesAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		roles string
		users map[string][]string
		says  string
	}{
		"misspelt name":                   {"ops: {allow: [bdev_lvol_crate]}", nil, `role ops: allow bdev_lvol_crate: unknown method "bdev_lvol_crate": did you mean bdev_lvol_create?`},
		"misspelt deny":                   {`ops: {allow: ["*"], deny: [bdev_lvol_delte]}`, nil, "did you mean bdev_lvol_delete?"},
		"wrong letter case":               {`ops: {allow: ["BDEV_*"]}`, nil, "no method matches: `spdk-proxy call rpc_get_methods`"},
		"misspelt glob":                   {`ops: {allow: ["bdev_lvl_*"]}`, nil, "role ops: allow bdev_lvl_*: no method matches: did you mean bdev_lvol_*?"},
		"glob of one method":              {`ops: {allow: ["spdk_get_versoin*"]}`, nil, "did you mean spdk_get_version?"},
		"glob with a similar prefix":      {`ops: {allow: ["bdev_lvol_inflat_*"]}`, nil, "did you mean bdev_lvol_inflate?"},
		"glob similar to two methods":     {`ops: {allow: ["notify_gt_*"]}`, nil, "did you mean notify_get_*?"},
		"glob of no method":               {`ops: {allow: ["x*"]}`, nil, "lists the names"},
		"malformed glob":                  {`ops: {allow: ["bdev_["]}`, nil, "globs support"},
		"deprecated name":                 {"ops: {allow: [get_lvol_stores]}", nil, "write bdev_lvol_get_lvstores"},
		"empty name":                      {`ops: {deny: [" "]}`, nil, "unknown method"},
		"empty role":                      {"ops: {}", nil, "role ops allows nothing"},
		"unknown role":                    {`ops: {allow: ["*"]}`, map[string][]string{"ann": {"storage"}}, `user ann has role "storage", which is neither built in nor under roles: the roles are admin, cinder, csi-controller, metrics, ops, read-only`},
		"role in a different letter case": {`ops: {allow: ["*"]}`, map[string][]string{"ann": {"Ops"}}, "did you mean ops?"},
		"user without roles":              {`ops: {allow: ["*"]}`, map[string][]string{"ann": nil}, "user ann has no roles"},
		"built-in name":                   {`read-only: {allow: ["*"]}`, nil, "role read-only is built in and cannot be redefined: choose another name, with extends: [read-only]"},
		"unknown parent":                  {"ops: {extends: [red-only]}", nil, "role ops extends red-only, which does not exist: did you mean read-only?"},
		"unknown grandparent":             {"a: {extends: [b]}\nb: {extends: [storage]}", nil, "role a extends b extends storage, which is neither"},
		"itself":                          {"ops: {extends: [ops]}", nil, "role ops extends ops: a role cannot extend itself"},
		"a cycle":                         {"a: {extends: [b]}\nb: {extends: [c]}\nc: {extends: [a]}", nil, "role b extends c extends a extends b: a role cannot"},
		"a cycle among other roles":       {"a: {extends: [b]}\nb: {extends: [c]}\nc: {extends: [b]}", nil, "role a extends b extends c extends b: a role cannot"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := New(parse(t, c.roles), with(c.users), rpcschema.Default())
			require.ErrorContains(t, err, c.says)
			assert.Nil(t, p)
		})
	}
}

func TestNewReportsAllMistakes(t *testing.T) {
	_, err := New(parse(t, "a: {allow: [nope_1, nope_2]}\nb: {}\n"), with(map[string][]string{"u": {"c"}}), rpcschema.Default())
	for _, says := range []string{"nope_1", "nope_2", "role b", "user u"} {
		require.ErrorContains(t, err, says)
	}
}

// The rules of a role that is inherited along two paths count only once.
func TestRolesInheritedTwiceCountOnce(t *testing.T) {
	p, err := New(parse(t, "top: {allow: [spdk_get_version]}\nleft: {extends: [top]}\nright: {extends: [top]}\nbottom: {extends: [left, right]}"),
		with(map[string][]string{"u": {"bottom", "top"}}), rpcschema.Default())
	require.NoError(t, err)
	assert.True(t, p.Decide("u", "spdk_get_version").Allowed)
	assert.Len(t, p.Explain("u", "spdk_get_version", nil, true), 1)
}

func TestLearningModeAllowsAndMarksCalls(t *testing.T) {
	roles := parse(t, "r: {allow: [spdk_get_version, {method: bdev_lvol_create, where: {/lvs_name: {glob: \"a*\"}}}], deny: [bdev_lvol_delete]}")
	p, err := New(roles, map[string]User{"new": {Learning: true}, "some": {Roles: []string{"r"}, Learning: true}, "strict": {Roles: []string{"r"}}}, rpcschema.Default())
	require.NoError(t, err)
	assert.Equal(t, "role r: allow spdk_get_version", p.Decide("some", "spdk_get_version").Rule)
	assert.False(t, p.Decide("some", "spdk_get_version").Learned)
	for _, c := range []struct {
		user, method, rule string
		params             map[string]any
	}{
		{"new", "spdk_get_version", NoRule, nil},
		{"some", "bdev_get_bdevs", NoRule, nil},
		{"some", "bdev_lvol_delete", "role r: deny bdev_lvol_delete", nil},
		{"some", "bdev_lvol_create", NoRuleThere, map[string]any{"lvs_name": "b"}},
	} {
		d := p.Decide(c.user, c.method).WithParams(c.params)
		assert.True(t, d.Allowed && d.Learned, "%s %s", c.user, c.method)
		assert.Equal(t, c.rule, d.Rule)
	}
	fits := p.Decide("some", "bdev_lvol_create").WithParams(map[string]any{"lvs_name": "abc"})
	assert.True(t, fits.Allowed)
	assert.False(t, fits.Learned)
	assert.True(t, p.Decide("strict", "bdev_lvol_delete").Refused(), "another user is not in learning mode")
	assert.True(t, p.Decide("new", "no_such_method").Refused())
	assert.True(t, p.Decide("nobody", "spdk_get_version").Refused())
}

// Decide must not allocate, because it is called for every call.
func TestDecideDoesNotAllocate(t *testing.T) {
	p, err := New(nil, map[string]User{"u": {Roles: []string{"admin"}}, "l": {Learning: true}, "c": {Roles: []string{ReadOnly}}}, rpcschema.Default())
	require.NoError(t, err)
	params := map[string]any{"reset_mode": "none"}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		for _, user := range []string{"u", "l", "c", "nobody"} {
			p.Decide(user, "bdev_get_iostat").WithParams(params)
		}
	}))
}

func BenchmarkDecide(b *testing.B) {
	p, err := New(nil, map[string]User{"u": {Roles: []string{"admin"}}}, rpcschema.Default())
	require.NoError(b, err)
	for b.Loop() {
		p.Decide("u", "bdev_lvol_create")
	}
}

// HasRole returns true even for roles that a user has only through other roles.
func TestUserHasInheritedRoles(t *testing.T) {
	p, err := New(map[string]Role{
		"boss": {Extends: []string{Admin}}, "careful": {Extends: []string{"boss"}, Deny: []Rule{{Method: "spdk_kill_instance"}}}, "all": {Allow: []Rule{{Method: "*"}}},
	}, map[string]User{"a": {Roles: []string{Admin}}, "b": {Roles: []string{"careful", ReadOnly}}, "c": {Roles: []string{"all"}}, "d": {Learning: true}}, rpcschema.Default())
	require.NoError(t, err)
	for user, admin := range map[string]bool{"a": true, "b": true, "c": false, "d": false, "nobody": false} {
		assert.Equal(t, admin, p.HasRole(user, Admin), user)
	}
	assert.Equal(t, []string{"careful", ReadOnly}, p.Roles("b"))
	assert.Equal(t, []string{}, p.Roles("d"))
	assert.Equal(t, []string{}, p.Roles("nobody"))
}
