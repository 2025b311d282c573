package rpcschema

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

var (
	v2305 = MustRelease("v23.05")
	v2401 = MustRelease("v24.01")
	v2605 = MustRelease("v26.05")
)

func params(t testing.TB, text string) map[string]any {
	v, err := jsonrpc.DecodeValue([]byte(text), jsonrpc.Limits{})
	require.NoError(t, err)
	object, _ := v.(map[string]any)
	return object
}

func TestReleasesAreParsed(t *testing.T) {
	for in, want := range map[string]Release{
		"v26.05": {26, 5}, "SPDK v26.05": {26, 5}, "SPDK v26.09-pre git sha1 3230130e6": {26, 9}, "v25.05.1": {25, 5}, "SPDK v24.01 git sha1 abc": {24, 1},
	} {
		got, err := ParseRelease(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
	for _, in := range []string{"", "26.05", "v26", "v26.5", "SPDK", "v26.055", "xv26.05"} {
		_, err := ParseRelease(in)
		assert.ErrorContains(t, err, "not an SPDK release", in)
	}
}

func TestReleaseWindowIsInclusive(t *testing.T) {
	w := Window{Since: v2305, Until: v2401}
	for r, want := range map[Release]bool{{23, 1}: false, {23, 5}: true, {23, 9}: true, {24, 1}: true, {24, 5}: false, {}: true} {
		assert.Equal(t, want, w.Has(r), r)
	}
	assert.Equal(t, "SPDK v23.05 to v24.01", w.String())
	assert.True(t, Window{}.Has(v2605))
}

func TestInvalidParamsAreReported(t *testing.T) {
	d := Default()
	for name, c := range map[string]struct {
		method, params string
		release        Release
		says           string // part of the error; "" if the parameters are valid
	}{
		"good":                   {"bdev_lvol_create", `{"lvol_name":"a","size_in_mib":5,"lvs_name":"l"}`, v2605, ""},
		"biggest integer":        {"bdev_lvol_create", `{"lvol_name":"a","size_in_mib":17592186044415,"lvs_name":"l"}`, v2605, ""},
		"too big":                {"bdev_lvol_create", `{"lvol_name":"a","size_in_mib":17592186044416,"lvs_name":"l"}`, v2605, "/size_in_mib: must be at most 17592186044415"},
		"biggest of all":         {"bdev_malloc_create", `{"num_blocks":18446744073709551615,"block_size":512}`, v2605, ""},
		"bigger than any":        {"bdev_malloc_create", `{"num_blocks":18446744073709551616,"block_size":512}`, v2605, "/num_blocks: must be at most 18446744073709551615"},
		"negative":               {"bdev_lvol_create", `{"lvol_name":"a","size_in_mib":-1,"lvs_name":"l"}`, v2605, "/size_in_mib: must be at least 0"},
		"mistyped":               {"bdev_lvol_create", `{"lvol_name":"a","size_in_mib":"5","lvs_name":"l"}`, v2605, "/size_in_mib: must be integer, not string"},
		"missing":                {"bdev_lvol_create", `{"size_in_mib":5,"lvs_name":"l"}`, v2605, "/lvol_name: is required"},
		"unknown, near":          {"bdev_lvol_create", `{"lvol_nme":"a","lvol_name":"a","size_in_mib":5,"lvs_name":"l"}`, v2605, "/lvol_nme: bdev_lvol_create has no such parameter: did you mean lvol_name?"},
		"wrong case":             {"bdev_lvol_create", `{"Lvol_name":"a","size_in_mib":5,"lvs_name":"l"}`, v2605, "did you mean lvol_name?"},
		"old parameter":          {"bdev_lvol_create", `{"lvol_name":"a","size":5,"lvs_name":"l"}`, v2605, "/size: bdev_lvol_create has this parameter in SPDK up to v24.01, but the target runs v26.05"},
		"old parameter, in time": {"bdev_lvol_create", `{"lvol_name":"a","size":5,"lvs_name":"l"}`, v2401, ""},
		"neither of both":        {"bdev_lvol_create", `{"lvol_name":"a","lvs_name":"l"}`, v2401, "give exactly one of size_in_mib, size"},
		"neither, long ago":      {"bdev_lvol_create", `{"lvol_name":"a","lvs_name":"l"}`, Oldest, "/size: is required"},
		"two of one":             {"bdev_lvol_create", `{"lvol_name":"a","size_in_mib":5,"lvs_name":"l","uuid":"c"}`, v2605, "give exactly one of uuid, lvs_name"},
		"no parameters":          {"spdk_get_version", `null`, v2605, ""},
		"none, as an object":     {"spdk_get_version", `{}`, v2605, "leave params out"},
		"none of several":        {"bdev_lvol_get_lvstores", `{}`, v2605, "leave params out"},
		"object, left out":       {"iscsi_set_discovery_auth", `null`, v2605, "give an empty object, {}"},
		"object":                 {"iscsi_set_discovery_auth", `{}`, v2605, ""},
		"either":                 {"vmd_rescan", `{}`, v2605, ""},
		"unknown method":         {"bdev_lvol_creat", `{}`, v2605, `unknown method "bdev_lvol_creat": did you mean bdev_lvol_create?`},
		"method of later days":   {"bdev_lvol_check_shallow_copy", `{"operation_id":1}`, v2305, "exists in SPDK v24.05 and later, but the target runs v23.05"},
		"required of old":        {"accel_set_driver", `{}`, MustRelease("v24.05"), "/name: is required"},
		"optional since":         {"accel_set_driver", `{}`, MustRelease("v24.09"), ""},
		"optional by default":    {"accel_set_driver", `{}`, Release{}, ""},
		"nested":                 {"nvmf_subsystem_add_ns", `{"nqn":"nqn.2016-06.io.spdk:c","namespace":{"bdev_name":"b","bogus":1}}`, v2605, "/namespace/bogus: no such member is known here"},
	} {
		t.Run(name, func(t *testing.T) {
			err := d.ValidateParams(c.method, params(t, c.params), c.release)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.says)
		})
	}
}

func TestViolationsNeverRepeatTheValue(t *testing.T) {
	err := Default().ValidateParams("bdev_lvol_create", params(t, `{"lvol_name":7654321,"size_in_mib":"hush-hush","lvs_name":["hush-hush"]}`), v2605)
	var v Violations
	require.True(t, errors.As(err, &v))
	assert.NotContains(t, v.Error(), "hush")
	assert.NotContains(t, v.Error(), "7654321")
}

func TestDeprecatedNameFindsTheMethod(t *testing.T) {
	d := Default()
	m, err := d.Find("get_lvol_stores", Release{})
	require.NoError(t, err)
	assert.Equal(t, "bdev_lvol_get_lvstores", m.Name)
	require.NoError(t, d.ValidateParams("get_lvol_stores", map[string]any{"lvs_name": "a"}, MustRelease("v26.05")))
}

func TestSecretParametersAreRedacted(t *testing.T) {
	d, err := Load([]byte(`{"methods":[{"name":"m","params":[
		{"name":"open","schema":{"type":"string"}},
		{"name":"hush","schema":{"type":"string","x-spdk-sensitive":true}},
		{"name":"list","schema":{"type":"array","items":{"$ref":"#/components/schemas/S"}}},
		{"name":"either","schema":{"oneOf":[{"type":"string"},{"$ref":"#/components/schemas/S"}]}},
		{"name":"map","schema":{"type":"object","additionalProperties":{"type":"string","x-spdk-sensitive":true}}}]}],
		"components":{"schemas":{"S":{"type":"object","properties":{"user":{"type":"string"},"secret":{"type":"string","x-spdk-sensitive":true}}}}}}`))
	require.NoError(t, err)
	in := params(t, `{"open":"o","hush":"h","list":[{"user":"u","secret":"s","what":"w"}],"either":{"user":"u","secret":"s"},"map":{"k":"v"},"unknown":"x"}`)
	out, err := json.Marshal(d.Redact("m", in))
	require.NoError(t, err)
	assert.JSONEq(t, `{"open":"o","hush":"[redacted]","list":[{"user":"u","secret":"[redacted]","what":"[redacted]"}],
		"either":{"user":"u","secret":"[redacted]"},"map":{"k":"[redacted]"},"unknown":"[redacted]"}`, string(out))
	out, err = json.Marshal(d.Redact("no_such_method", in))
	require.NoError(t, err)
	assert.NotContains(t, string(out), `"o"`)
	assert.Nil(t, d.Redact("m", nil))
}

// Every method must compile for every release. Otherwise, a mistake in an area file would appear
// only when the method is first called.
func TestEveryMethodCompiles(t *testing.T) {
	d := Default()
	for _, r := range []Release{{}, Oldest, v2401, v2605} {
		for _, m := range d.Methods() {
			if !m.Has(r) {
				continue
			}
			c, err := d.compilerFor(r)
			require.NoError(t, err)
			_, err = c.compiled(r, "params", m.Name)
			require.NoError(t, err)
			_, err = c.compiled(r, "results", m.Name)
			require.NoError(t, err)
		}
	}
}

func TestInvalidResultsAreReported(t *testing.T) {
	d := Default()
	require.NoError(t, d.ValidateResult("bdev_lvol_delete", true, v2605))
	require.ErrorContains(t, d.ValidateResult("bdev_lvol_delete", "yes", v2605), "must be")
	require.ErrorContains(t, d.ValidateResult("bdev_lvol_get_lvstores", []any{map[string]any{"bogus": true}}, v2605), "/0/bogus: no such member is known here")
}

func BenchmarkValidateLvolCreate(b *testing.B) {
	d := Default()
	p := params(b, `{"lvol_name":"pvc-0d9a57b2","size_in_mib":1024,"lvs_name":"lvs0","thin_provision":true,"clear_method":"unmap"}`)
	require.NoError(b, d.ValidateParams("bdev_lvol_create", p, v2605))
	b.ReportAllocs()
	for b.Loop() {
		_ = d.ValidateParams("bdev_lvol_create", p, v2605)
	}
}
