package tenancy

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// If `hosts` restricts who may connect, a tenant cannot open an object to all hosts by any method
// or spelling, unless `allow` permits it.
func TestTenantsCannotOpenObjectsToEveryHost(t *testing.T) {
	const nqn = "nqn.2016-06.io.spdk:red-two"
	opening := []struct {
		kind, method string
		since        string
		params       func(x things) p
	}{
		{"any-host", "nvmf_create_subsystem", "v23.01", func(things) p { return p{"nqn": nqn, "allow_any_host": true} }},
		{"any-host", "nvmf_subsystem_allow_any_host", "v23.01", func(x things) p { return p{"nqn": x.nqn, "allow_any_host": true} }},
		{"device-commands", "nvmf_create_subsystem", "v24.09", func(things) p { return p{"nqn": nqn, "passthrough": true} }},
		{"unauthenticated", "iscsi_target_node_set_auth", "v23.01", func(x things) p { return p{"name": x.iqn} }},
		{"unauthenticated", "iscsi_target_node_set_auth", "v23.01", func(x things) p { return p{"name": x.iqn, "disable_chap": true} }},
		{"unauthenticated", "iscsi_target_node_set_auth", "v23.01", func(x things) p { return p{"name": x.iqn, "require_chap": false} }},
	}
	for _, release := range []string{"v24.01", "v26.05"} {
		w := newWorld(t, release)
		red, _ := w.settle()
		before := len(w.sent)
		for _, o := range opening {
			if w.release.Before(rpcschema.MustRelease(o.since)) {
				continue
			}
			_, err := w.call("alice", o.method, o.params(red))
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal, "%s %s %v", release, o.method, o.params(red))
			assert.Contains(t, err.Error(), "allow: ["+o.kind+"]")
			assert.Contains(t, err.Error(), o.method)
		}
		assert.Len(t, w.sent, before, "no call was sent to the target")
		assert.Equal(t, "false", w.field("nvmf_get_subsystems", p{"nqn": red.nqn}, "allow_any_host"))

		w.must("alice", "nvmf_create_subsystem", p{"nqn": nqn, "allow_any_host": false})
		w.must("alice", "nvmf_subsystem_allow_any_host", p{"nqn": nqn, "allow_any_host": false})
		w.must("alice", "nvmf_create_subsystem", p{"nqn": nqn + "-default"})
		w.must("alice", "iscsi_target_node_set_auth", p{"name": red.iqn, "require_chap": true})
	}
	for _, o := range opening {
		w := newWorld(t, "v26.05", func(red *Tenant) { red.Allow = []string{o.kind} })
		red, _ := w.settle()
		w.must("alice", o.method, o.params(red))
	}
}

// Every parameter whose name suggests that it grants access is annotated or listed here, so that
// parameters added by later releases are not overlooked.
func TestOpeningParametersAreAnnotated(t *testing.T) {
	sounds := regexp.MustCompile(`(^|_)(any|all|public|open|passthrough|passthru|unrestricted|insecure)(_|$)`)
	harmless := []string{
		"nvmf_create_transport.disable_command_passthru", // this parameter removes access
		// not available to tenants, because it works only before the target starts
		"nvmf_set_config.admin_cmd_passthru",
		"bdev_zone_block_create.optimal_open_zones", // concerns zones of a disk
	}
	annotated := 0
	for _, m := range rpcschema.Default().Methods() {
		for _, param := range m.Params {
			if param.Schema.Opens != nil {
				annotated++
			} else if sounds.MatchString(param.Name) {
				assert.True(t, slices.Contains(harmless, m.Name+"."+param.Name), "%s.%s: annotate it by x-spdk-opens, or list it here with the reason", m.Name, param.Name)
			}
		}
	}
	assert.GreaterOrEqual(t, annotated, 4)
}

func TestUnknownAllowValuesAreRejected(t *testing.T) {
	red := redTenant()
	red.Allow = []string{"any-hosts"}
	_, err := New([]Tenant{red}, nil, rpcschema.Default(), nil)
	require.Error(t, err)
	assert.Contains(t, err.Error(), `tenant red: allow: "any-hosts" is unknown: the values are any-size, any-host, deleted-data, device-commands, unauthenticated`)
}
