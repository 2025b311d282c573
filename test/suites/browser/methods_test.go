package browser

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// To find out what else exposes a volume, the export dialog calls only methods that the target has
// and the user may call. Other calls would fail, and the audit log would show the failures.
func TestExportDialogAvoidsCallsThatWouldFail(t *testing.T) {
	w := exportTestbed(t)
	var built []string
	require.NoError(t, json.Unmarshal(w.call(t, "rpc_get_methods", nil), &built))
	require.False(t, slices.Contains(built, "ublk_get_disks"), "this test needs a target without ublk")
	for user, volume := range map[string]string{"admin": "db", "team": "web"} {
		p := newPageAt(t, w)
		p.signIn(user)
		p.openPanel("volumes", volume)
		before := len(w.log.failed(user))
		p.press("Export…")
		p.fill("NQNs of hosts", hostA)
		if user == "team" {
			p.fill("Other addresses of the storage server", "127.0.0.1:4421")
			p.has("You must not read other exports")
		} else {
			p.has("1 host can connect")
		}
		assert.Empty(t, w.log.failed(user)[before:], user)
	}
}

// "100 %" means exactly 100 %: an overcommitted lvstore shows more, and an lvstore with free space
// shows less.
func TestPercentagesAreNotRoundedTo100(t *testing.T) {
	p := newPage(t)
	p.open("")
	p.injectModel()
	assert.Equal(t, []string{"0 %", "0.4 %", "9.4 %", "10 %", "99 %", "99.6 %", "99.9 %", "100 %", "100.1 %", "100.5 %", "101 %", "–"},
		eval[[]string](p, `[0, 0.004, 0.094, 0.096, 0.994, 0.9969, 0.99999, 1, 1.00001, 64 / 63.7, 1.006, NaN].map(model.percent)`))
}

// The dialog does not use a tenant's address for other volumes unless the administrator chooses it.
func TestExportDialogAvoidsAddressesOfOtherTenants(t *testing.T) {
	w := exportTestbed(t)
	const other = "nqn.2026-01.example.storage:other"
	w.call(t, "nvmf_subsystem_add_listener", object{"nqn": other, "listen_address": object{"trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": "4421"}})
	for volume, addresses := range map[string]int{"db": 1, "web": 2} {
		p := newPageAt(t, w)
		p.signIn("admin")
		p.openPanel("volumes", volume)
		p.press("Export…")
		p.fill("NQNs of hosts", hostA)
		p.has("1 host can connect")
		p.has("TCP 127.0.0.1:4421" + map[int]string{1: " (tenant team)"}[addresses])
		p.sameInTerminal("admin")
		assert.Equal(t, addresses, strings.Count(p.shownCalls("JSON"), `"method": "nvmf_subsystem_add_listener"`), volume)
	}
}
