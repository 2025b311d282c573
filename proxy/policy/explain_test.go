package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Explain lists all of a user's rules about a method.
func TestExplainListsAllRules(t *testing.T) {
	roles := parse(t, `
a: {allow: [{method: bdev_lvol_create, where: {/lvs_name: {glob: "a*"}}}]}
b: {allow: [{method: bdev_lvol_create, where: {/lvs_name: {glob: "*b"}}}]}
all: {allow: [bdev_lvol_create]}
never: {deny: [{method: bdev_lvol_create, where: {/lvs_name: {enum: [ab]}}}]}
no: {deny: [bdev_lvol_create]}
nor: {deny: ["bdev_lvol_creat[e]"]}
`)
	p, err := New(roles, with(map[string][]string{"ab": {"a", "b"}, "but": {"all", "never"}, "no": {"all", "no", "nor"}}), rpcschema.Default())
	require.NoError(t, err)
	const (
		decides  = "decides"
		depends  = "depends on the parameters"
		notA     = "does not apply: the call does not meet the condition /lvs_name is a*"
		notB     = "does not apply: the call does not meet the condition /lvs_name is *b"
		notAB    = "does not apply: the call does not meet the condition /lvs_name is ab"
		too      = "also allows it"
		denyWins = "allows it, but a deny takes precedence"
	)
	for _, c := range []struct {
		user, params string // "" means that the parameters are unknown
		why          map[string]string
	}{
		{"ab", "", map[string]string{"a": depends, "b": depends}},
		{"ab", `{"lvs_name":"ax"}`, map[string]string{"a": decides, "b": notB}},
		{"ab", `{"lvs_name":"xb"}`, map[string]string{"a": notA, "b": decides}},
		{"ab", `{"lvs_name":"ab"}`, map[string]string{"a": decides, "b": too}},
		{"ab", `{"lvs_name":"x"}`, map[string]string{"a": notA, "b": notB}},
		{"but", `{"lvs_name":"x"}`, map[string]string{"all": decides, "never": notAB}},
		{"but", `{"lvs_name":"ab"}`, map[string]string{"all": denyWins, "never": decides}},
		{"no", `{"lvs_name":"x"}`, map[string]string{"all": denyWins, "no": decides, "nor": "also denies it"}},
	} {
		var params map[string]any
		if c.params != "" {
			params = decodeParams(t, c.params)
		}
		why := map[string]string{}
		for _, f := range p.Explain(c.user, "bdev_lvol_create", params, c.params != "") {
			why[f.Role] = f.Why
			assert.Equal(t, f.Why == decides, f.Decides, "%s %s %s", c.user, c.params, f.Role)
			assert.Equal(t, f.Role[0] != 'n', f.Allow, f.Role)
		}
		assert.Equal(t, c.why, why, "%s %s", c.user, c.params)
	}
	assert.Nil(t, p.Explain("nobody", "bdev_lvol_create", nil, true))
	assert.Nil(t, p.Explain("ab", "no_such_method", nil, true))
}

// If a call contains two equivalent parameters, conditions on them cannot be tested. A deny
// applies, but a conditional allow does not.
func TestExplainReportsAmbiguousParameters(t *testing.T) {
	roles := parse(t, `
small: {allow: [{method: bdev_lvol_create, where: {/size_in_mib: {maximum: 64}}}]}
all: {allow: [bdev_lvol_create]}
large: {deny: [{method: bdev_lvol_create, where: {/size_in_mib: {minimum: 1024}}}]}
`)
	p, err := New(roles, with(map[string][]string{"some": {"small"}, "any": {"small", "all"}, "none": {"all", "large"}}), rpcschema.Default())
	require.NoError(t, err)
	const ambiguous = "has conditions that cannot be tested, because two parameters of the call mean the same"
	twice := decodeParams(t, `{"lvol_name":"v","size":1048576,"size_in_mib":1}`)
	for user, c := range map[string]struct {
		allowed bool
		why     map[string]string
	}{
		"some": {false, map[string]string{"small": ambiguous}},
		"any":  {true, map[string]string{"small": ambiguous, "all": "decides"}},
		"none": {false, map[string]string{"all": "allows it, but a deny takes precedence", "large": "decides"}},
	} {
		assert.Equal(t, c.allowed, p.Decide(user, "bdev_lvol_create").WithParams(twice).Allowed, user)
		why := map[string]string{}
		for _, f := range p.Explain(user, "bdev_lvol_create", twice, true) {
			why[f.Role] = f.Why
		}
		assert.Equal(t, c.why, why, user)
	}
}

// A rule that returns secrets takes precedence over a rule that removes them, whatever their order.
func TestRuleThatReturnsSecretsTakesPrecedence(t *testing.T) {
	p, err := New(parse(t, `shows: {allow: [framework_get_config]}`),
		with(map[string][]string{"both": {ReadOnly, "shows"}, "reversed": {"shows", ReadOnly}, "redacted": {ReadOnly}}), rpcschema.Default())
	require.NoError(t, err)
	explain := func(user, method string) map[string]string {
		why := map[string]string{}
		for _, f := range p.Explain(user, method, map[string]any{}, true) {
			why[f.Role] = f.Why
		}
		return why
	}
	const method = "framework_get_config"
	for user, why := range map[string]map[string]string{
		"both":     {ReadOnly: "allows it without secrets, but the other rule shows them", "shows": "decides"},
		"reversed": {ReadOnly: "allows it without secrets, but the other rule shows them", "shows": "decides"},
		"redacted": {ReadOnly: "decides"},
	} {
		assert.Equal(t, why, explain(user, method), user)
		assert.Equal(t, user == "redacted", p.Decide(user, method).Redact, user)
	}
}

// The list of a user's methods names the rules that depend on parameters.
func TestMethodListNamesConditionalRules(t *testing.T) {
	p, err := New(parse(t, `r: {allow: [spdk_get_version, {method: bdev_lvol_create, where: {/lvs_name: {glob: "a*"}}}], deny: [{method: bdev_lvol_create, where: {/lvs_name: {enum: [ab]}}}]}`),
		with(map[string][]string{"u": {"r"}}), rpcschema.Default())
	require.NoError(t, err)
	depends := map[string][]string{}
	for _, m := range p.Methods("u") {
		depends[m.Method] = m.Depends
	}
	assert.Equal(t, map[string][]string{
		"spdk_get_version": nil,
		"bdev_lvol_create": {"role r: deny bdev_lvol_create where /lvs_name is ab", "role r: allow bdev_lvol_create where /lvs_name is a*"},
	}, depends)
}
