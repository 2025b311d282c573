package tenancy

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An error that refuses a name, host or address lists those that the tenant may use, but reveals
// none that belong to another tenant.
func TestRefusalsStateWhatIsAllowed(t *testing.T) {
	w := newWorld(t, "v26.05", func(red *Tenant) { red.VolumeNQN = "nqn.2020-04.io.spdk.csi:uuid:" })
	red, _ := w.settle()
	tcp := func(addr, port string) p {
		return p{"trtype": "TCP", "adrfam": "IPv4", "traddr": addr, "trsvcid": port}
	}
	for _, c := range []struct {
		method string
		params p
		says   string
	}{
		{"nvmf_create_subsystem", p{"nqn": "nqn.2016-06.io.spdk:blue-two"}, "its NQNs begin with nqn.2016-06.io.spdk:red-, nqn.2020-04.io.spdk.csi:uuid:UUID-OF-A-VOLUME"},
		{"nvmf_subsystem_add_host", p{"nqn": red.nqn, "host": "nqn.2024-01.com.example:other"}, "its hosts are nqn.2014-08.org.nvmexpress:uuid:*"},
		{"nvmf_subsystem_add_listener", p{"nqn": red.nqn, "listen_address": tcp("127.0.0.2", "4420")}, "its addresses are 127.0.0.1:4420"},
		{"bdev_lvol_rename_lvstore", p{"old_name": "lvs-red", "new_name": "lvs-blue"}, "its lvstores are lvs-red, lvs-red2"},
		{"spdkgate_key_add", p{"name": "blue-2", "secret": "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"}, "names of its keys begin with red-"},
		{"bdev_malloc_create", p{"name": "blue-2", "num_blocks": 8, "block_size": 512}, "its bdevs match red-*"},
	} {
		_, err := w.call("alice", c.method, c.params)
		var refusal *Refusal
		require.ErrorAs(t, err, &refusal, c.method)
		assert.Regexp(t, ": "+regexp.QuoteMeta(c.says)+"$", err.Error())
		assert.NotContains(t, err.Error(), "blue")
	}

	w = newWorld(t, "v26.05", func(red *Tenant) { red.Hosts = nil })
	red, _ = w.settle()
	_, err := w.call("alice", "nvmf_subsystem_add_host", p{"nqn": red.nqn, "host": redHost})
	require.ErrorContains(t, err, "The tenant has no `hosts`: ask the administrator of this proxy")
}
