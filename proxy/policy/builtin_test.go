package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// The built-in roles allow exactly the methods that follow from the schema's annotations.
func TestBuiltInRolesFollowTheSchema(t *testing.T) {
	schema := rpcschema.Default()
	users := map[string][]string{}
	for name := range BuiltIn(schema) {
		users[name] = []string{name}
	}
	p, err := New(nil, with(users), schema)
	require.NoError(t, err)
	counts := map[string]int{}
	for _, m := range schema.Methods() {
		admin, reader, metrics := p.Decide(Admin, m.Name), p.Decide(ReadOnly, m.Name), p.Decide(Metrics, m.Name)
		assert.True(t, admin.Allowed && !admin.Redact, m.Name)
		if m.Mutates {
			assert.False(t, reader.Allowed, "%s changes the target", m.Name)
			assert.Equal(t, len(m.ReadsIf) == 0, reader.Refused(), m.Name)
		}
		if m.Stalls {
			assert.True(t, reader.Refused(), "%s may delay the target", m.Name)
		}
		for _, param := range m.Params {
			if param.Required && param.Schema.Sensitive {
				assert.True(t, reader.Refused(), "%s requires a secret", m.Name)
			}
		}
		assert.Equal(t, reader.Allowed && schema.Discloses(m), reader.Redact, "%s: secrets are removed", m.Name)
		if metrics.Refused() {
			assert.False(t, m.Statistics && !reader.Refused(), m.Name)
		} else {
			assert.True(t, m.Statistics, m.Name)
			assert.Equal(t, reader.Allowed, metrics.Allowed, m.Name)
			counts["metrics"]++
		}
		if !reader.Refused() {
			counts["read-only"]++
		}
	}
	assert.Greater(t, counts["read-only"], 60)
	assert.Greater(t, counts["metrics"], 15)
}

// For these methods, the built-in roles decide correctly even if the schema lacks an annotation.
func TestBuiltInRolesDecideCorrectly(t *testing.T) {
	p, err := New(nil, with(map[string][]string{"r": {ReadOnly}, "m": {Metrics}}), rpcschema.Default())
	require.NoError(t, err)
	for _, method := range []string{"spdk_get_version", "rpc_get_methods", "bdev_get_bdevs", "bdev_lvol_get_lvols", "nvmf_get_subsystems", "thread_get_stats", "framework_get_reactors"} {
		assert.True(t, p.Decide("r", method).Allowed, method)
	}
	for _, method := range []string{"spdk_kill_instance", "bdev_nvme_send_cmd", "framework_wait_init", "bdev_wait_for_examine", "bdev_pmem_get_pool_info", "bdev_opal_get_info", "blobfs_detect", "env_dpdk_get_mem_stats", "bdev_reset_iostat", "log_set_level"} {
		assert.True(t, p.Decide("r", method).Refused(), method)
	}
	for _, method := range []string{"spdk_get_version", "nvmf_get_stats", "thread_get_stats", "bdev_lvol_get_lvstores", "iobuf_get_stats", "spdkgate_get_metrics"} {
		assert.True(t, p.Decide("m", method).Allowed, method)
	}
	for _, user := range []string{"r", "m"} {
		iostat := p.Decide(user, "bdev_get_iostat")
		assert.True(t, iostat.WithParams(nil).Allowed)
		assert.True(t, iostat.WithParams(map[string]any{"name": "n", "reset_mode": "none"}).Allowed)
		assert.False(t, iostat.WithParams(map[string]any{"reset_mode": "all"}).Allowed)
		assert.False(t, iostat.WithParams(map[string]any{"reset_mode": nil}).Allowed)
	}
}

// If one allow rule returns secrets and another removes them, the result contains the secrets
// whenever the conditions of the first rule hold.
func TestAllowRuleWithSecretsTakesPrecedence(t *testing.T) {
	roles := parse(t, `
all: {extends: [read-only], allow: [bdev_get_bdevs]}
own: {extends: [read-only], allow: [{method: bdev_get_bdevs, where: {/name: {glob: "own*"}}}]}
`)
	p, err := New(roles, with(map[string][]string{"reader": {ReadOnly}, "all": {"all"}, "own": {"own"}}), rpcschema.Default())
	require.NoError(t, err)
	for _, c := range []struct {
		user, name string
		redact     bool
	}{{"reader", "own1", true}, {"all", "own1", false}, {"own", "own1", false}, {"own", "other", true}} {
		d := p.Decide(c.user, "bdev_get_bdevs").WithParams(map[string]any{"name": c.name})
		assert.True(t, d.Allowed)
		assert.Equal(t, c.redact, d.Redact, "%s %s", c.user, c.name)
	}
}
