package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// withRoles adds roles, and users with these roles, all with the same password.
func withRoles(t *testing.T, roles string, users map[string][]string) func(*config.Config) {
	return func(c *config.Config) {
		require.NoError(t, yaml.Unmarshal([]byte(roles), &c.Roles))
		for name, list := range users {
			c.Users = append(c.Users, config.User{Name: name, PasswordHash: hashes()[adminPassword], Roles: list})
		}
	}
}

const smallRole = `small: {allow: [spdk_get_version, {method: bdev_malloc_create, where: {/num_blocks: {maximum: 100}, /name: {glob: "s*"}}}]}`

// Before it makes any other call, the proxy checks conditions on the parameters that SPDK would
// receive. A refused call does not reach SPDK.
func TestConditionsAreCheckedBeforeSPDK(t *testing.T) {
	b := newBench(t, "v26.05", withRoles(t, smallRole, map[string][]string{"small": {"small"}}))
	for params, status := range map[string]int{
		`{"name":"s1","num_blocks":100,"block_size":512}`: http.StatusOK,
		`{"name":"s2","num_blocks":101,"block_size":512}`: http.StatusForbidden,
		`{"name":"x","num_blocks":1,"block_size":512}`:    http.StatusForbidden,
		`{"num_blocks":1,"block_size":512}`:               http.StatusForbidden,
		`{"name":"s3","num_blocks":1e1,"block_size":512}`: http.StatusForbidden,
		`{"name":"s4","num_blocks":1}`:                    http.StatusBadRequest,
	} {
		g := b.as(t, "small", "bdev_malloc_create", params, status)
		line := b.lastCall()
		switch status {
		case http.StatusOK:
			assert.Equal(t, "allow", line["decision"])
			assert.Equal(t, "role small: allow bdev_malloc_create where /name is s*, /num_blocks is at most 100", line["rule"])
		case http.StatusForbidden:
			assert.Contains(t, g.body, "not with these parameters")
			assert.Equal(t, "deny", line["decision"])
			assert.Equal(t, "no rule allows it with these parameters", line["rule"])
		default:
			assert.Equal(t, "none", line["decision"], "the call failed before a decision was made")
		}
	}
	assert.Equal(t, []string{"bdev_malloc_create"}, b.reached())
	b.as(t, "small", "bdev_malloc_delete", `{"wrong":1}`, http.StatusForbidden)

	document := b.as(t, "small", "rpc.discover", "", http.StatusOK).body
	assert.Contains(t, document, `"bdev_malloc_create"`, "a method that is allowed with some parameters is in the document")
	assert.NotContains(t, document, `"bdev_malloc_delete"`)
}

// A condition on the size in MiB also applies to a size in bytes, whether it is translated for a
// newer target or sent unchanged to an older target.
func TestConditionsApplyToOldParameterNames(t *testing.T) {
	const role = `lvols: {allow: [{method: bdev_lvol_create, where: {/size_in_mib: {maximum: 8}, /lvs_name: {enum: [lvs]}}}]}`
	for _, release := range []string{"v23.01", "v24.01", "v26.05"} {
		b := newBench(t, release, withRoles(t, role, map[string][]string{"lvols": {"lvols"}}))
		b.as(t, "admin", "bdev_malloc_create", `{"name":"base","num_blocks":524288,"block_size":512}`, http.StatusOK)
		b.as(t, "admin", "bdev_lvol_create_lvstore", `{"bdev_name":"base","lvs_name":"lvs"}`, http.StatusOK)
		for params, status := range map[string]int{
			`{"lvol_name":"a","lvs_name":"lvs","size":8388608}`:                 http.StatusOK,
			`{"lvol_name":"b","lvs_name":"lvs","size":8388609}`:                 http.StatusForbidden,
			`{"lvol_name":"c","lvs_name":"lvs","size_in_mib":8}`:                http.StatusOK,
			`{"lvol_name":"d","lvs_name":"lvs","size_in_mib":9}`:                http.StatusForbidden,
			`{"lvol_name":"e","lvs_name":"lvs","size_in_mib":1,"size":1048576}`: http.StatusBadRequest,
		} {
			b.as(t, "lvols", "bdev_lvol_create", params, status)
		}
	}
}

// Users with only the role read-only do not see secrets. Users with more permissions do.
func TestReadersDoNotSeeSecrets(t *testing.T) {
	const secret = "0123456789abcdef0123456789ABCDEF"
	b := newBench(t, "v26.05", withRoles(t, "both: {extends: [read-only], allow: [accel_crypto_keys_get]}",
		map[string][]string{"reader": {"read-only"}, "both": {"both"}, "scraper": {"metrics"}}))
	b.as(t, "admin", "accel_crypto_key_create", `{"cipher":"AES_XTS","key":"`+secret+`","key2":"`+strings.ToLower(secret[:31])+`0","name":"k"}`, http.StatusOK)
	seen := b.as(t, "reader", "accel_crypto_keys_get", "", http.StatusOK).body
	assert.Contains(t, seen, `"name":"k"`)
	assert.Contains(t, seen, `"key":"`+rpcschema.Redacted+`"`)
	assert.NotContains(t, strings.ToLower(seen), strings.ToLower(secret[:16]))
	for _, user := range []string{"admin", "both"} {
		assert.Contains(t, strings.ToLower(b.as(t, user, "accel_crypto_keys_get", "", http.StatusOK).body), strings.ToLower(secret), user)
	}
	b.as(t, "scraper", "accel_crypto_keys_get", "", http.StatusForbidden)

	// The role metrics may read statistics, but not reset them.
	for _, user := range []string{"reader", "scraper"} {
		b.as(t, user, "bdev_get_iostat", "", http.StatusOK)
		b.as(t, user, "bdev_get_iostat", `{"reset_mode":"none"}`, http.StatusOK)
		b.as(t, user, "bdev_get_iostat", `{"reset_mode":"all"}`, http.StatusForbidden)
		b.as(t, user, "bdev_malloc_delete", `{"name":"k"}`, http.StatusForbidden)
	}
}

// In learning mode, calls that would have been refused are executed and logged. A role can be
// created from the log.
func TestLearningModeExecutesAndLogs(t *testing.T) {
	b := newBench(t, "v26.05", withRoles(t, smallRole, map[string][]string{"small": {"small"}}), func(c *config.Config) {
		c.Users = append(c.Users, config.User{Name: "new", PasswordHash: hashes()[adminPassword], Learning: true})
		c.Users[2].Learning = true
	})
	b.as(t, "new", "bdev_malloc_create", `{"name":"m0","num_blocks":2048,"block_size":512}`, http.StatusOK)
	line := b.lastCall()
	assert.Equal(t, "learn", line["decision"])
	assert.Equal(t, "no rule allows it", line["rule"])
	assert.Equal(t, "WARN", line["level"])
	b.as(t, "small", "bdev_malloc_create", `{"name":"s0","num_blocks":2048,"block_size":512}`, http.StatusOK)
	assert.Equal(t, "learn", b.lastCall()["decision"])
	b.as(t, "small", "spdk_get_version", "", http.StatusOK)
	assert.Equal(t, "allow", b.lastCall()["decision"])
	b.as(t, "new", "spdk_get_version", "", http.StatusOK)
	b.as(t, "new", "bdev_malloc_create", `{"name":"m1"}`, http.StatusBadRequest)
	b.as(t, "viewer", "bdev_malloc_create", `{}`, http.StatusUnauthorized) // with a wrong password
	assert.Equal(t, http.StatusForbidden, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc)).StatusCode, "a user who is not in learning mode")
	assert.Equal(t, http.StatusUnauthorized, b.do("POST", "/", "new", "wrong", strings.NewReader(createMalloc)).StatusCode)

	learned, err := auditlog.ReadLearned(strings.NewReader("Nov 21 host spdk-proxy[1]: "+b.log.String()+"\nnot JSON\n"), false, rpcschema.Default())
	require.NoError(t, err)
	assert.Positive(t, learned.Skipped)
	var text strings.Builder
	require.NoError(t, learned.WriteRoles(&text))
	assert.Contains(t, text.String(), "# For new, small.")
	var c config.Config
	require.NoError(t, config.DecodeStrict([]byte(text.String()), &c), text.String())
	assert.Equal(t, map[string]config.Role{"learned-of-new": {Allow: rules("bdev_malloc_create", "spdk_get_version")}}, c.Roles)

	learned, err = auditlog.ReadLearned(strings.NewReader(b.log.String()), true, rpcschema.Default())
	require.NoError(t, err)
	text.Reset()
	require.NoError(t, learned.WriteRoles(&text))
	assert.Contains(t, text.String(), "learned-of-viewer:\n    allow:\n      - bdev_malloc_create\n")

	_, err = auditlog.ReadLearned(strings.NewReader("time=x msg=call\n"), false, rpcschema.Default())
	require.ErrorContains(t, err, "log.format json")
}

// Learning mode affects only roles, not tenancy.
func TestLearningDoesNotAffectTenants(t *testing.T) {
	b := newTenantBench(t, func(c *config.Config) { c.Learning = true })
	b.as(t, teamA, "nvmf_create_transport", `{"trtype":"RDMA"}`, http.StatusForbidden)
	b.as(t, teamA, "bdev_get_bdevs", `{"name":"Baseb"}`, http.StatusOK)
	assert.NotContains(t, b.as(t, teamA, "bdev_lvol_get_lvstores", "", http.StatusOK).body, "lvs-b")
	b.as(t, teamA, "rpc_get_methods", "", http.StatusOK)
	assert.Equal(t, "learn", b.lastCall()["decision"])
}

func decodeObject(t *testing.T, text string) map[string]any {
	v, err := jsonrpc.DecodeValue([]byte(text), jsonrpc.Limits{})
	require.NoError(t, err)
	return v.(map[string]any)
}

func encode(t *testing.T, v any) string {
	text, err := jsonrpc.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
