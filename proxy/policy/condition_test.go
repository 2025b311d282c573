package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// decodeParams decodes parameters as the proxy does.
func decodeParams(t testing.TB, text string) map[string]any {
	v, err := jsonrpc.DecodeValue([]byte(text), jsonrpc.Limits{})
	require.NoError(t, err, text)
	return v.(map[string]any)
}

// asks returns the decision about a call by a user with this role.
func asks(t testing.TB, role, method, params string) Decision {
	p, err := New(parse(t, "r: "+role), with(map[string][]string{"u": {"r"}}), rpcschema.Default())
	require.NoError(t, err, role)
	return p.Decide("u", method).WithParams(decodeParams(t, params))
}

// If it is certain whether the parameters meet a condition, an allow and a deny with this condition
// agree. Otherwise, the allow does not apply, but the deny does.
func TestUncertainConditionsDenyCalls(t *testing.T) {
	const (
		fits  = "fits"
		not   = "does not"
		maybe = "uncertain"
	)
	for _, group := range []struct {
		method, where string
		calls         map[string]string
	}{
		{"bdev_lvol_create", `{/lvs_name: {glob: "lvs-a*"}}`, map[string]string{
			`{"lvs_name":"lvs-a"}`:  fits,
			`{"lvs_name":"lvs-a1"}`: fits,
			`{"lvs_name":"lvs-b"}`:  not,
			`{"lvs_name":"xlvs-a"}`: not,
			// SPDK distinguishes these names, but a deny must not depend on letter case
			`{"lvs_name":"LVS-A"}`:       maybe,
			`{"lvs_name":"lvs-a/x"}`:     maybe,
			`{"uuid":"u"}`:               maybe,
			`{}`:                         maybe,
			`{"lvs_name":null}`:          maybe,
			`{"lvs_name":["lvs-a"]}`:     maybe,
			`{"lvs_name":{"a":"b"}}`:     maybe,
			`{"lvs_name":12}`:            maybe,
			`{"LVS_NAME":"lvs-b"}`:       maybe,
			`{"lvs_name":"lvs-b\u0000"}`: not,
		}},
		{"bdev_lvol_create", `{/lvs_name: {glob: "lvs-a*", absent: true}}`, map[string]string{`{}`: fits, `{"lvs_name":"lvs-a"}`: fits, `{"lvs_name":"b"}`: not, `{"lvs_name":null}`: maybe}},
		{"bdev_lvol_create", `{/lvs_name: {glob: "lvs-a*", absent: false}}`, map[string]string{`{}`: not, `{"lvs_name":"lvs-a"}`: fits}},
		{"bdev_lvol_create", `{/uuid: {absent: true}}`, map[string]string{`{}`: fits, `{"uuid":"u"}`: not, `{"uuid":null}`: maybe}},
		{"bdev_lvol_create", `{/uuid: {absent: false}}`, map[string]string{`{}`: not, `{"uuid":"u"}`: fits}},

		// These cases use the new parameter, or the old parameter in bytes.
		{"bdev_lvol_create", `{/size_in_mib: {maximum: 100}}`, map[string]string{
			`{"size_in_mib":100}`:                  fits,
			`{"size_in_mib":101}`:                  not,
			`{"size_in_mib":0}`:                    fits,
			`{"size_in_mib":18446744073709551615}`: not,
			`{"size_in_mib":18446744073709551616}`: maybe,
			`{"size_in_mib":1e1}`:                  maybe,
			`{"size_in_mib":100.0}`:                maybe,
			// left to the schema, which rejects -1
			`{"size_in_mib":-1}`:            fits,
			`{"size_in_mib":"100"}`:         maybe,
			`{"size":104857600}`:            fits,
			`{"size":104857601}`:            not,
			`{"size":1048576}`:              fits,
			`{"size":18446744073709551615}`: not,
			`{"size":1e3}`:                  maybe,
			// two forms of one parameter, either of which SPDK may use
			`{"size":10485760,"size_in_mib":1}`:   maybe,
			`{"size":10485760,"size_in_mib":900}`: maybe,
		}},
		// It is unknown which of two equivalent parameters SPDK uses, so neither counts as absent.
		{"bdev_lvol_create", `{/uuid: {absent: true}, /size_in_mib: {maximum: 100, absent: true}}`, map[string]string{
			`{"size_in_mib":1}`:                    fits,
			`{}`:                                   fits,
			`{"size":10485760,"size_in_mib":900}`:  maybe,
			`{"size":99999999999,"size_in_mib":1}`: maybe,
		}},
		{"bdev_lvol_resize", `{/size_in_mib: {minimum: 2, maximum: 3}}`, map[string]string{
			`{"size_in_mib":1}`: not, `{"size_in_mib":2}`: fits, `{"size_in_mib":3}`: fits, `{"size_in_mib":4}`: not,
			`{"size":1048576}`: not, `{"size":1048577}`: fits, `{"size":3145728}`: fits, `{"size":3145729}`: not,
		}},
		{"bdev_lvol_create", `{/size_in_mib: {enum: [100, 200]}}`, map[string]string{
			`{"size_in_mib":100}`: fits, `{"size_in_mib":101}`: not, `{"size":209715200}`: fits, `{"size_in_mib":"100"}`: maybe, `{"size_in_mib":1e2}`: maybe,
		}},
		{"nvmf_subsystem_add_host", `{/nqn: {glob: "nqn.a:*"}, /host: {enum: ["nqn.h1", "nqn.h2"]}}`, map[string]string{
			`{"nqn":"nqn.a:1","host":"nqn.h1"}`: fits,
			`{"nqn":"nqn.a:1","host":"nqn.h3"}`: not,
			`{"nqn":"nqn.b:1","host":"nqn.h1"}`: not,
			`{"nqn":"nqn.a:1"}`:                 maybe,
			// one item that certainly does not match suffices
			`{"nqn":"nqn.b:1"}`: not,
		}},
		{"bdev_lvol_create", `{/thin_provision: {enum: [true]}}`, map[string]string{
			`{"thin_provision":true}`: fits, `{"thin_provision":false}`: not, `{}`: maybe, `{"thin_provision":"true"}`: maybe,
		}},
		{"iscsi_create_portal_group", `{/tag: {minimum: 1}}`, map[string]string{`{"tag":-1}`: not, `{"tag":-0}`: not, `{"tag":1}`: fits}},
	} {
		for params, want := range group.calls {
			name := group.method + " " + group.where + " " + params
			t.Run(name, func(t *testing.T) {
				rule := "{method: " + group.method + ", where: " + group.where + "}"
				d := asks(t, "{allow: ["+rule+"]}", group.method, params)
				assert.Equal(t, want == fits, d.Allowed, "allow")
				denied, err := New(parse(t, `r: {allow: ["*"], deny: [`+rule+`]}`), with(map[string][]string{"u": {"r"}}), rpcschema.Default())
				require.NoError(t, err)
				assert.Equal(t, want == not, denied.Decide("u", group.method).WithParams(decodeParams(t, params)).Allowed, "deny")
			})
		}
	}
}

// For a list, an allow applies only if all items match, and a deny applies if any item matches.
func TestConditionsApplyToListItems(t *testing.T) {
	const allow = `{allow: [{method: bdev_raid_create, where: {"/base_bdevs/*": {glob: "team-a-*"}}}]}`
	for params, want := range map[string]bool{
		`{"base_bdevs":["team-a-1","team-a-2"]}`: true,
		`{"base_bdevs":["team-a-1","team-b-2"]}`: false,
		`{"base_bdevs":[]}`:                      false,
		`{"base_bdevs":"team-a-1"}`:              false,
		`{}`:                                     false,
	} {
		assert.Equal(t, want, asks(t, allow, "bdev_raid_create", params).Allowed, params)
	}
	const iostat = `{allow: [{method: bdev_get_iostat, where: {"/names/*": {glob: "team-a-*"}}}]}`
	for params, want := range map[string]bool{
		`{"names":["team-a-1"]}`:                   true,
		`{"name":"team-a-1"}`:                      true, // in the format of older releases
		`{"name":"team-b-1"}`:                      false,
		`{"names":["team-a-1"],"name":"team-b-1"}`: false,
		`{"names":["team-a-1"],"name":"team-a-1"}`: false,
		`{"name":["team-a-1"]}`:                    false,
	} {
		assert.Equal(t, want, asks(t, iostat, "bdev_get_iostat", params).Allowed, params)
	}
	const deny = `{allow: ["*"], deny: [{method: iscsi_create_target_node, where: {"/pg_ig_maps/*/pg_tag": {enum: [1], absent: false}}}]}`
	for params, want := range map[string]bool{
		`{"pg_ig_maps":[{"pg_tag":2,"ig_tag":1},{"pg_tag":1,"ig_tag":1}]}`: false,
		`{"pg_ig_maps":[{"pg_tag":2,"ig_tag":1}]}`:                         true,
		`{"pg_ig_maps":[]}`: true,
		`{"pg_ig_maps":7}`:  false,
	} {
		assert.Equal(t, want, asks(t, deny, "iscsi_create_target_node", params).Allowed, params)
	}
}

// A path with "..", extra slashes or more components does not match a glob with the same beginning.
func TestConditionsOnPathsCannotBeBypassed(t *testing.T) {
	const role = `{allow: [{method: bdev_aio_create, where: {/filename: {glob: "/dev/mapper/*"}}}]}`
	for params, want := range map[string]bool{
		`{"filename":"/dev/mapper/a"}`:       true,
		`{"filename":"/dev/mapper/../sda"}`:  false,
		`{"filename":"/dev/mapper/.."}`:      false,
		`{"filename":"/dev/mapper/a/b"}`:     false,
		`{"filename":"/dev/mapper//a"}`:      false,
		`{"filename":"/dev/mapper/a\u0000"}`: true, // left to the schema or SPDK, which reject the path
	} {
		assert.Equal(t, want, asks(t, role, "bdev_aio_create", params).Allowed, params)
	}
}

// If several roles contain rules about one method, the rules are combined.
func TestRulesOfSeveralRolesAreCombined(t *testing.T) {
	roles := parse(t, `
a: {allow: [{method: bdev_lvol_create, where: {/lvs_name: {glob: "a*"}}}]}
b: {allow: [{method: "bdev_lvol_creat[e]", where: {/lvs_name: {glob: "b*"}, /size_in_mib: {maximum: 10}}}]}
all: {allow: [bdev_lvol_create]}
never: {deny: [{method: bdev_lvol_create, where: {/lvs_name: {enum: [ab]}}}]}
`)
	p, err := New(roles, with(map[string][]string{"ab": {"a", "b"}, "all": {"a", "all"}, "but": {"all", "never"}}), rpcschema.Default())
	require.NoError(t, err)
	for _, c := range []struct{ user, params, rule string }{
		{"ab", `{"lvs_name":"a"}`, "role a: allow bdev_lvol_create where /lvs_name is a*"},
		{"ab", `{"lvs_name":"b","size_in_mib":10}`, "role b: allow bdev_lvol_creat[e] where /lvs_name is b*, /size_in_mib is at most 10"},
		{"ab", `{"lvs_name":"b","size_in_mib":11}`, NoRuleThere},
		{"all", `{"lvs_name":"c"}`, "role all: allow bdev_lvol_create"},
		{"but", `{"lvs_name":"ab"}`, "role never: deny bdev_lvol_create where /lvs_name is ab"},
		{"but", `{"lvs_name":"abc"}`, "role all: allow bdev_lvol_create"},
		{"but", `{}`, "role never: deny bdev_lvol_create where /lvs_name is ab"},
	} {
		d := p.Decide(c.user, "bdev_lvol_create")
		assert.False(t, d.Refused())
		assert.Equal(t, c.rule, d.WithParams(decodeParams(t, c.params)).Rule, "%s %s", c.user, c.params)
	}
	assert.True(t, p.Decide("all", "bdev_lvol_create").Allowed, "an allow without conditions makes other allows redundant")
}

func TestInvalidConditionsAreRejected(t *testing.T) {
	for where, says := range map[string]string{
		`{/lvs_nam: {glob: "a*"}}`:                 `/lvs_nam of bdev_lvol_create: bdev_lvol_create has no "lvs_nam": did you mean lvs_name?`,
		`{lvs_name: {glob: "a*"}}`:                 "did you mean /lvs_name?",
		`{/lvs_name/x: {glob: "a*"}}`:              "/lvs_name has no members",
		`{/lvs_name/*: {glob: "a*"}}`:              "/lvs_name has no members",
		`{/size: {maximum: 5}}`:                    "size_in_mib replaces it: write size_in_mib, which also applies to size",
		`{/size_in_mib: {glob: "1*"}}`:             "glob is for strings",
		`{/lvs_name: {maximum: 5}}`:                "minimum and maximum are for numbers",
		`{/lvs_name: {enum: [5]}}`:                 `5 is not a string: write "5"`,
		`{/size_in_mib: {enum: ["5"]}}`:            "5 is impossible here: the type is integer",
		`{/size_in_mib: {minimum: 5, maximum: 4}}`: "no number is at least 5 and at most 4",
		`{/clear_method: {enum: [umap]}}`:          `"umap" is impossible here: the values are none, unmap`,
		`{/clear_method: {glob: "x*"}}`:            "x* matches none of none, unmap",
		`{/lvs_name: {glob: "["}}`:                 "globs support",
		`{/lvs_name: {}}`:                          "the test is empty",
		`{}`:                                       "where is empty",
		`{"/a~2b": {glob: "a"}}`:                   "write ~0 for ~",
	} {
		for _, list := range []string{"allow", "deny"} {
			_, err := New(parse(t, "r: {"+list+": [{method: bdev_lvol_create, where: "+where+"}]}"), nil, rpcschema.Default())
			require.ErrorContains(t, err, says, where)
		}
	}
	for rule, says := range map[string]string{
		`{method: "bdev_lvol_*", where: {/lvs_name: {glob: "a"}}}`:               "/lvs_name of bdev_lvol_delete",
		`{method: bdev_raid_create, where: {/base_bdevs: {glob: "a"}}}`:          "it is a list: write /base_bdevs/*",
		`{method: bdev_raid_create, where: {/base_bdevs/0: {glob: "a"}}}`:        "/base_bdevs is a list: write /base_bdevs/*",
		`{method: spdk_get_version, where: {/a: {glob: "a"}}}`:                   "spdk_get_version has no parameters",
		`{method: nvmf_subsystem_add_ns, where: {/namespace/bdev: {glob: "a"}}}`: "/namespace has no \"bdev\"; it has bdev_name, nsid",
		`{method: nvmf_subsystem_add_ns, where: {/namespace: {glob: "a"}}}`:      "glob is for strings",
	} {
		_, err := New(parse(t, "r: {allow: ["+rule+"]}"), nil, rpcschema.Default())
		require.ErrorContains(t, err, says, rule)
	}
}

// A deny is rejected if another spelling of the parameter could bypass it.
func TestIneffectiveDeniesAreRejected(t *testing.T) {
	for rule, sound := range map[string]bool{
		`{method: bdev_lvol_delete, where: {/name: {glob: "lvs-b/*"}}}`:                                false, // a UUID is also a name
		`{method: bdev_aio_create, where: {/filename: {glob: "/dev/sd*"}}}`:                            false,
		`{method: nvmf_subsystem_add_listener, where: {/listen_address/traddr: {enum: ["10.0.0.1"]}}}`: false,
		`{method: bdev_virtio_attach_controller, where: {/traddr: {glob: "/x*"}}}`:                     false,
		`{method: bdev_lvol_create, where: {/lvs_name: {glob: "lvs-b*"}}}`:                             true,
		`{method: nvmf_delete_subsystem, where: {/nqn: {glob: "nqn.b:*"}}}`:                            true,
		`{method: bdev_lvol_create, where: {/clear_method: {enum: [unmap]}}}`:                          true,
		`{method: bdev_lvol_create, where: {/size_in_mib: {minimum: 1000}}}`:                           true,
		`{method: bdev_lvol_delete, where: {/name: {absent: true}}}`:                                   true,
	} {
		_, err := New(parse(t, `r: {allow: ["*"], deny: [`+rule+`]}`), nil, rpcschema.Default())
		if sound {
			require.NoError(t, err, rule)
			continue
		}
		require.ErrorContains(t, err, "could be bypassed", rule)
		_, err = New(parse(t, "r: {allow: ["+rule+"]}"), nil, rpcschema.Default())
		require.NoError(t, err, rule)
	}
}

func TestValuesMatchExactly(t *testing.T) {
	for text, ok := range map[string]bool{
		"18446744073709551615": true, "-9223372036854775808": true, "0": true, "-0": true, "18446744073709551616": false, "0x10": false, "1e3": false, "1_000": false,
		"010": false, "1.0": false, `"5"`: false, "true": false, "null": true, "+5": false,
	} {
		var test Test
		err := yamlDecode("{maximum: "+text+"}", &test)
		assert.Equal(t, ok, err == nil, "%s: %v", text, err)
	}
	var test Test
	require.NoError(t, yamlDecode(`{enum: [a, "5", 5, true, 18446744073709551615, ""]}`, &test))
	assert.Equal(t, `is a or 5 or 5 or true or 18446744073709551615 or ""`, test.String())
	for _, text := range []string{"{enum: [1.5]}", "{enum: [[a]]}", "{enum: [2026-01-01]}"} {
		require.Error(t, yamlDecode(text, &test), text)
	}
}
