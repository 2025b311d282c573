package rpcschema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeprecatedCallsAreTranslated(t *testing.T) {
	v2301, v2409, v2509, v2601, v2609 := Oldest, MustRelease("v24.09"), MustRelease("v25.09"), MustRelease("v26.01"), MustRelease("v26.09")
	const listen = `"traddr":"127.0.0.1","trsvcid":"4420"`
	for name, c := range map[string]struct {
		method, in, want string
		release          Release
		done             []Translation
	}{
		"size, new to old":      {"bdev_lvol_create", `{"size_in_mib":5}`, `{"size":5242880}`, v2301, []Translation{{"size_in_mib", "size"}}},
		"size, old to new":      {"bdev_lvol_create", `{"size":5242880}`, `{"size_in_mib":5}`, v2605, []Translation{{"size", "size_in_mib"}}},
		"size, rounded up":      {"bdev_lvol_resize", `{"size":5242881}`, `{"size_in_mib":6}`, v2605, []Translation{{"size", "size_in_mib"}}},
		"size, both known":      {"bdev_lvol_create", `{"size":5}`, `{"size":5}`, v2401, nil},
		"size, nothing to do":   {"bdev_lvol_create", `{"size_in_mib":5}`, `{"size_in_mib":5}`, v2605, nil},
		"size, unknown release": {"bdev_lvol_create", `{"size":5}`, `{"size":5}`, Release{}, nil},
		"size, not a number":    {"bdev_lvol_create", `{"size":"x"}`, `{"size_in_mib":"x"}`, v2605, []Translation{{"size", "size_in_mib"}}},
		"size, not whole":       {"bdev_lvol_create", `{"size":1.5}`, `{"size_in_mib":1.5}`, v2605, []Translation{{"size", "size_in_mib"}}},
		"size, negative":        {"bdev_lvol_create", `{"size":-1}`, `{"size_in_mib":-1}`, v2605, []Translation{{"size", "size_in_mib"}}},
		"size, the largest":     {"bdev_lvol_create", `{"size":18446744073709551615}`, `{"size_in_mib":17592186044416}`, v2605, []Translation{{"size", "size_in_mib"}}},
		"retries":               {"bdev_nvme_set_options", `{"retry_count":3}`, `{"transport_retry_count":3}`, v2409, []Translation{{"retry_count", "transport_retry_count"}}},
		"retries, both known":   {"bdev_nvme_set_options", `{"retry_count":3}`, `{"retry_count":3}`, v2401, nil},
		"retries, new on old":   {"bdev_nvme_set_options", `{"transport_retry_count":3}`, `{"transport_retry_count":3}`, v2301, nil},
		"discovery": {"iscsi_set_options", `{"no_discovery_auth":false,"req_discovery_auth":true,"req_discovery_auth_mutual":true,"discovery_auth_group":2}`,
			`{"disable_chap":false,"require_chap":true,"mutual_chap":true,"chap_group":2}`, v2601,
			[]Translation{{"no_discovery_auth", "disable_chap"}, {"req_discovery_auth", "require_chap"}, {"req_discovery_auth_mutual", "mutual_chap"}, {"discovery_auth_group", "chap_group"}}},
		"discovery, in time":           {"iscsi_set_options", `{"no_discovery_auth":true}`, `{"no_discovery_auth":true}`, v2509, nil},
		"a member":                     {"nvmf_subsystem_add_listener", `{"listen_address":{"transport":"TCP",` + listen + `}}`, `{"listen_address":{"trtype":"TCP",` + listen + `}}`, v2409, []Translation{{"listen_address.transport", "listen_address.trtype"}}},
		"a member, in time":            {"nvmf_subsystem_add_listener", `{"listen_address":{"transport":"TCP",` + listen + `}}`, `{"listen_address":{"transport":"TCP",` + listen + `}}`, v2401, nil},
		"a member of a missing object": {"nvmf_subsystem_add_listener", `{"listen_address":"x"}`, `{"listen_address":"x"}`, v2605, nil},
		"one to a list":                {"bdev_get_iostat", `{"name":"a"}`, `{"names":["a"]}`, v2605, []Translation{{"name", "names"}}},
		"a list to one":                {"bdev_get_iostat", `{"names":["a"]}`, `{"name":"a"}`, v2401, []Translation{{"names", "name"}}},
		"KiB to blocks":                {"nvmf_create_subsystem", `{"max_discard_size_kib":1024}`, `{"dmrsl":2048}`, v2609, []Translation{{"max_discard_size_kib", "dmrsl"}}},
		"KiB to blocks, both known":    {"nvmf_create_subsystem", `{"max_discard_size_kib":1024}`, `{"max_discard_size_kib":1024}`, v2605, nil},
		"blocks stay":                  {"nvmf_create_subsystem", `{"dmrsl":2048}`, `{"dmrsl":2048}`, v2601, nil},
		"KiB to a power":               {"nvmf_create_subsystem", `{"max_write_zeroes_size_kib":1024}`, `{"wzsl":8}`, v2609, []Translation{{"max_write_zeroes_size_kib", "wzsl"}}},
		"KiB to a power, least":        {"nvmf_create_subsystem", `{"max_write_zeroes_size_kib":8}`, `{"wzsl":1}`, v2609, []Translation{{"max_write_zeroes_size_kib", "wzsl"}}},
		"KiB to a power, none":         {"nvmf_create_subsystem", `{"max_write_zeroes_size_kib":0}`, `{"wzsl":0}`, v2609, []Translation{{"max_write_zeroes_size_kib", "wzsl"}}},
		"implied by later releases":    {"nvmf_create_transport", `{"trtype":"VFIOUSER","disable_compare":false}`, `{"trtype":"VFIOUSER"}`, v2605, []Translation{{"disable_compare", LeftOut}}},
		"in time":                      {"nvmf_create_transport", `{"trtype":"VFIOUSER","disable_compare":false}`, `{"trtype":"VFIOUSER","disable_compare":false}`, v2601, nil},
		"removed without effect":       {"vhost_create_blk_controller", `{"packed_ring_recovery":true}`, `{"packed_ring_recovery":true}`, v2605, nil},
		"another case":                 {"log_set_level", `{"level":"debug"}`, `{"level":"DEBUG"}`, v2605, []Translation{{"level in another case", "level"}}},
		"another case, in time":        {"log_set_level", `{"level":"debug"}`, `{"level":"DEBUG"}`, v2301, []Translation{{"level in another case", "level"}}},
		"no such value":                {"log_set_level", `{"level":"loud"}`, `{"level":"loud"}`, v2605, nil},
		"two at once": {"nvmf_create_subsystem", `{"max_write_zeroes_size_kib":16,"max_discard_size_kib":3}`, `{"wzsl":2,"dmrsl":6}`, v2609,
			[]Translation{{"max_discard_size_kib", "dmrsl"}, {"max_write_zeroes_size_kib", "wzsl"}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, ok := Default().Method(c.method)
			require.True(t, ok)
			in := params(t, c.in)
			out, done, err := m.Translate(in, c.release)
			require.NoError(t, err)
			assert.Equal(t, params(t, c.want), out)
			assert.Equal(t, c.done, done)
			assert.Equal(t, params(t, c.in), in, "Translate must not modify the given parameters")
		})
	}
}

// A call that cannot be translated safely is refused with an error that names the parameter and
// gives advice.
func TestUnsafeTranslationsAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		method, in string
		release    Release
		says       string
	}{
		"old and new":             {"bdev_lvol_create", `{"size":5,"size_in_mib":5}`, v2605, "/size: size and size_in_mib mean the same: give only size_in_mib"},
		"old and new, members":    {"nvmf_subsystem_add_listener", `{"listen_address":{"transport":"TCP","trtype":"TCP"}}`, v2605, "/listen_address/transport: transport and trtype mean the same"},
		"too large":               {"bdev_lvol_create", `{"size_in_mib":18446744073709551615}`, Oldest, "/size_in_mib: 18446744073709551615 is too large"},
		"several in place of one": {"bdev_get_iostat", `{"names":["a","b"]}`, v2401, "/names: the target's release accepts only one: send one call for each"},
		"none in place of one":    {"bdev_get_iostat", `{"names":[]}`, v2401, "/names: the target's release accepts only one"},
		"not a power of 2":        {"nvmf_create_subsystem", `{"max_write_zeroes_size_kib":24}`, MustRelease("v26.09"), "must be 0, or 8 times a power of 2"},
		"less than two pages":     {"nvmf_create_subsystem", `{"max_write_zeroes_size_kib":4}`, MustRelease("v26.09"), "must be 0, or 8 times a power of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			m, ok := Default().Method(c.method)
			require.True(t, ok)
			_, _, err := m.Translate(params(t, c.in), c.release)
			require.ErrorContains(t, err, c.says)
		})
	}
}

// The error for a removed parameter or method names the replacement.
func TestRefusalsNameTheReplacement(t *testing.T) {
	for name, c := range map[string]struct{ method, in, says string }{
		"another unit":  {"bdev_lvol_create", `{"lvol_name":"a","lvs_name":"l","size":1048576}`, "give size_in_mib instead, which is size / 1048576"},
		"another name":  {"bdev_nvme_set_options", `{"retry_count":3}`, "give transport_retry_count instead"},
		"a member":      {"nvmf_subsystem_add_listener", `{"nqn":"nqn.2016-06.io.spdk:a","listen_address":{"transport":"TCP","traddr":"::1"}}`, "/listen_address/transport: nvmf_subsystem_add_listener has this parameter in SPDK up to v24.05, but the target runs v26.05: give trtype instead"},
		"a list":        {"bdev_get_iostat", `{"name":"a"}`, "give names instead, a list"},
		"another call":  {"bdev_set_options", `{"small_buf_pool_size":8191}`, "give small_pool_count to iobuf_set_options"},
		"other options": {"nvmf_create_transport", `{"trtype":"VFIOUSER","disable_compare":true}`, "give masked_oncs [nvmcmps] and masked_fuses [fcws]"},
		"nothing":       {"bdev_compress_create", `{}`, "exists in SPDK up to v25.05, but the target runs v26.05: SPDK no longer compresses"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Default().ValidateParams(c.method, params(t, c.in), v2605), c.says)
		})
	}
	err := Default().ValidateParams("nvmf_create_subsystem", params(t, `{"nqn":"nqn.2016-06.io.spdk:a","max_write_zeroes_size_kib":8,"max_discard_size_kib":1}`), MustRelease("v26.09"))
	require.ErrorContains(t, err, "give wzsl instead, which is log2(max_write_zeroes_size_kib / 4), and 0 for 0")
	require.ErrorContains(t, err, "give dmrsl instead, which is max_discard_size_kib × 2")
}

// If the target's release supports both the old member and the new one, either is enough.
func TestEitherOldOrNewMemberSuffices(t *testing.T) {
	for _, r := range []Release{Oldest, v2401, v2605} {
		for in, ok := range map[string]bool{
			`{"trtype":"TCP","traddr":"::1"}`:    true,
			`{"transport":"TCP","traddr":"::1"}`: r != v2605,
			`{"traddr":"::1"}`:                   false,
			`{"trtype":"TCP"}`:                   false,
		} {
			err := Default().ValidateParams("nvmf_subsystem_add_listener", params(t, `{"nqn":"nqn.2016-06.io.spdk:a","listen_address":`+in+`}`), r)
			assert.Equal(t, ok, err == nil, "%s at %s: %v", in, r, err)
		}
	}
	err := Default().ValidateParams("nvmf_subsystem_add_listener", params(t, `{"nqn":"nqn.2016-06.io.spdk:a","listen_address":{"traddr":"::1"}}`), v2401)
	require.EqualError(t, err, "/listen_address/trtype: is required")
}

// A call with an old method name is sent with the current name. Therefore, every release must
// support the current name, and no method's old name may be another method's name.
func TestOldMethodNamesAreUnambiguous(t *testing.T) {
	old := 0
	for _, m := range Default().Methods() {
		for _, alias := range m.Aliases {
			old++
			assert.True(t, m.Has(Oldest), "%s of %s", alias, m.Name)
			_, taken := Default().Method(alias)
			assert.False(t, taken, alias)
			found, err := Default().Find(alias, v2605)
			require.NoError(t, err)
			assert.Equal(t, m, found)
		}
	}
	assert.Equal(t, 10, old)
}
