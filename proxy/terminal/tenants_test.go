package terminal

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func oneTenant(name string, own bool, used uint64) Tenant {
	return Tenant{
		Name: name, Own: own,
		Quota:    spdkrpc.ProxyTenantAmounts{Bytes: new(uint64(10 << 30)), Subsystems: new(uint64(4)), Hosts: new(uint64(10))},
		Used:     spdkrpc.ProxyTenantAmounts{Bytes: new(used << 30), Volumes: new(uint64(7)), Subsystems: new(uint64(1)), Hosts: new(uint64(8)), Listeners: new(uint64(0))},
		Lvstores: []string{"lvs0"}, NQNPrefixes: []string{"nqn.a:"}, VolumeNQNPrefix: new("nqn.b:"), Addresses: []string{"192.0.2.1:4420", "192.0.2.2"},
	}
}

const tenantScreen = `SPDK v26.05

Volumes      7, and 2 snapshots
Exports      3 NVMe-oF subsystems with 4 namespaces and 6 listeners, 1 iSCSI target

Quota of tenant red
space      [######################..]  91 %, 9.1 GiB of 10 GiB
volumes    7 used, without a limit
subsystems [######..................]  25 %, 1 of 4 subsystems
hosts      [###################.....]  80 %, 8 of 10 hosts
listeners  0 used, without a limit

Names of tenant red
Lvstores     lvs0
NQNs         nqn.a:, nqn.b:UUID-OF-A-VOLUME
Addresses    192.0.2.1:4420, 192.0.2.2

Warnings
! tenant red uses 91 % of its quota: 9.1 GiB of 10 GiB
? the target broke
? not shown, because the user's roles do not permit it: nvmf_get_subsystems

This is all that belongs to tenant red.
Load and connections of the whole target are shown only to users without a tenant.
`

// If the user is not permitted to read tenants, the page does not claim to show the whole target.
func TestStatusSaysThatATenantMayBeUnknown(t *testing.T) {
	f := reading()
	f.Failures = []figures.Failure{{Method: tenantsMethod, Err: &spdkrpc.Error{Method: tenantsMethod, Kind: spdkrpc.Denied}}}
	s, err := NewStatus(f, "")
	require.NoError(t, err)
	assert.Contains(t, Page{}.Status(s), "? if the user has a tenant, only what belongs to the tenant is counted: a role that allows spdkgate_get_tenants shows the tenant\n")
}

// A tenant's page shows the tenant's usage and quota. It lists data as missing only if the user's
// roles deny it.
func TestTenantScreenShowsUsageAndQuota(t *testing.T) {
	f := reading()
	denied := func(method string) figures.Failure {
		return figures.Failure{Method: method, Err: &spdkrpc.Error{Method: method, Kind: spdkrpc.Denied}}
	}
	f.Reactors, f.Buffers, f.Started, f.Stores = nil, nil, time.Time{}, nil
	f.Failures = []figures.Failure{denied("framework_get_reactors"), denied("nvmf_get_stats"), {Method: "x", Err: errors.New("the target broke")}, denied("nvmf_get_subsystems")}
	s, err := NewStatus(f, "")
	require.NoError(t, err)
	s.Volumes, s.Snapshots = 7, 2
	red := oneTenant("red", true, 9)
	*red.Used.Bytes += 100 << 20
	s.AddTenants([]Tenant{red})
	assert.Equal(t, tenantScreen, Page{}.Status(s))
	require.Len(t, s.Missing, 4, "scripts learn what could not be read")
	for _, width := range []int{30, 40, 60, 80} {
		for line := range strings.Lines(Page{Width: width}.Status(s)) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
		}
	}
	assert.Contains(t, Page{Colours: true}.Status(s), "[\x1b[31m######################\x1b[0m..]", "nearly used up is red")
}

// A user without a tenant sees, for each tenant, the limit that is closest to being reached. The
// tenant closest to a limit comes first.
func TestScreenListsTenantsNearTheirQuotas(t *testing.T) {
	s, err := NewStatus(reading(), "")
	require.NoError(t, err)
	list := []Tenant{oneTenant("half", false, 5), oneTenant("full", false, 10)}
	for _, name := range strings.Fields("a b c d e f g") {
		list = append(list, oneTenant(name, false, 0))
	}
	s.AddTenants(list)
	text := Page{}.Status(s)
	assert.Contains(t, text, "Tenants\nfull [########################] 100 %, 10 GiB of 10 GiB\nhalf [###################.....]  80 %, 8 of 10 hosts\na    [")
	assert.Contains(t, text, "\nf    [###################.....]  80 %, 8 of 10 hosts\nand 1 more\n")
	assert.Contains(t, text, "! tenant full uses 100 % of its quota: 10 GiB of 10 GiB\n")
	assert.NotContains(t, text, "This is all")
	assert.Contains(t, text, "? thread_get_stats: denied\n", "for users without a tenant, nothing is left out")
}

func TestScreenShowsTheUsersLimits(t *testing.T) {
	s, err := NewStatus(reading(), "")
	require.NoError(t, err)
	s.AddLimits(Limits{User: "ann", CallsRunning: 64, CallsRunningLimit: 256})
	assert.Contains(t, Page{}.Status(s), "\n\nLimits of user ann\nrunning    [######..................]  25 %, 64 of 256 calls\n\n")
	assert.NotContains(t, Page{}.Status(s), "waiting calls")
	s.AddLimits(Limits{User: "ann", CallsRunning: 2, CallsRunningLimit: 2, CallsWaiting: 1, CallsPerSecond: new(uint64(5)), CallsPerSecondLimit: new(uint64(10))})
	text := Page{}.Status(s)
	assert.Contains(t, text, "running    [########################] 100 %, 2 of 2 calls\nper second [############............]  50 %, 5 of 10 calls in the last second\n")
	assert.Contains(t, text, "! waiting calls of user ann: 1, because 2 of 2 are running\n")
	for line := range strings.Lines(Page{Width: 40}.Status(s)) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 40, line)
	}
}
