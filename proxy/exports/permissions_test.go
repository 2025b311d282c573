package exports

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A plan contains no calls that are known to fail because the target was built without the method,
// or because the user is not permitted to make the call.
func TestPlanAvoidsCallsThatWouldFail(t *testing.T) {
	w := newWorld(t, "v26.05")
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}}
	failed := &recording{Caller: w.socket}
	_, err := PlanExport(t.Context(), spdkrpc.NewClient(failed), r)
	require.NoError(t, err)
	assert.Empty(t, failed.methods)

	failed.denied = []string{"iscsi_get_target_nodes", "keyring_get_keys", "rpc_get_methods", tenantsMethod}
	r.Allowed = []string{"bdev_get_bdevs", "nvmf_get_subsystems", "nvmf_get_transports", "nvmf_create_transport", "nvmf_create_subsystem", "nvmf_subsystem_add_ns", "nvmf_subsystem_add_host", "nvmf_subsystem_add_listener"}
	p, err := PlanExport(t.Context(), spdkrpc.NewClient(failed), r)
	require.NoError(t, err)
	assert.Empty(t, failed.methods)
	assert.Contains(t, p.Warnings[0], "must not read other exports (iSCSI, nbd, ublk, vhost)")
	assert.Equal(t, "this user must not call "+tenantsMethod, p.Unpredicted())
}

// A call that the user's roles do not permit is refused before any call is made.
func TestPlanPredictsRefusalsByRoles(t *testing.T) {
	w := newWorld(t, "v26.05")
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}, Allowed: []string{"rpc_get_methods", "nvmf_create_transport", "nvmf_create_subsystem", "nvmf_subsystem_add_ns"}}
	_, err := PlanExport(t.Context(), w.rpc, r)
	require.ErrorIs(t, err, ErrRefused)
	require.Equal(t, spdkrpc.Denied, spdkrpc.KindOf(err))
	assert.EqualError(t, err, "nvmf_subsystem_add_host: denied: this user may not make this call: ask the administrator of this proxy for a role that allows it (code -32003). Nothing was changed")
}

// Quotas for hosts and listeners take all calls of the plan into account. The names of a tenant's
// keys are checked.
func TestPlanPredictsRefusalsByTenantLimits(t *testing.T) {
	w := newWorld(t, "v26.05")
	var all []string
	for _, m := range rpcschema.Default().Methods() {
		all = append(all, m.Name)
	}
	w.call("nvmf_create_transport", `{"trtype":"TCP"}`)
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostB}, Listen: []Portal{here}, Allowed: all}
	plan := func(quota, used string, r Request) error {
		tenant := `[{"name":"team","own":true,"quota":` + quota + `,"used":` + used + `,"lvstores":["lvs0"],"bdevs":[],"nqn_prefixes":[],"volume_nqn_prefix":"` + rpcschema.UUIDPrefix +
			`","iqn_prefixes":[],"key_prefixes":["team-"],"addresses":["127.0.0.1"],"hosts":["nqn.*"],"allow":[]}]`
		_, err := PlanExport(t.Context(), spdkrpc.NewClient(&answering{Caller: w.socket, method: tenantsMethod, result: tenant}), r)
		return err
	}
	require.NoError(t, plan(`{"hosts":2,"listeners":1,"subsystems":1}`, `{}`, r))
	err := plan(`{"hosts":3,"listeners":1,"subsystems":1}`, `{"hosts":2}`, r)
	require.Equal(t, spdkrpc.NoSpace, spdkrpc.KindOf(err))
	assert.ErrorContains(t, err, "nvmf_subsystem_add_host: no space: tenant team: the quota is 3 hosts, of which 2 are used, and this call needs 2 more")
	require.ErrorContains(t, plan(`{"listeners":1}`, `{"listeners":1}`, r), "nvmf_subsystem_add_listener: no space")
	without := r
	without.Allowed = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "nvmf_subsystem_add_host" })
	err = plan(`{}`, `{}`, without)
	require.Equal(t, spdkrpc.Denied, spdkrpc.KindOf(err))
	require.ErrorContains(t, err, "nvmf_subsystem_add_host: denied: this user may not make this call: ask the administrator of this proxy for a role")
	r.Key = &Key{Name: "other", Secret: "s"}
	err = plan(`{}`, `{}`, r)
	require.Equal(t, spdkrpc.Denied, spdkrpc.KindOf(err))
	assert.ErrorContains(t, err, "names of its keys begin with team-")
	assert.NotContains(t, err.Error(), "s\"")
}

// If an administrator's request names no addresses, the export does not listen at addresses of
// tenants that do not own the volume.
func TestExportAvoidsAddressesOfOtherTenants(t *testing.T) {
	w := newWorld(t, "v26.05")
	for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		w.export(Request{Volume: "lvs0/v1", Hosts: []string{hostA}, Listen: []Portal{{"TCP", addr, "4420"}}})
	}
	tenant := func(name, lvstore, address string) string {
		return `{"name":"` + name + `","own":false,"quota":{},"used":{},"lvstores":["` + lvstore + `"],"bdevs":[],"nqn_prefixes":[],"iqn_prefixes":[],"key_prefixes":[],"addresses":["` + address + `"],"hosts":[],"allow":[]}`
	}
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}}
	for _, m := range rpcschema.Default().Methods() {
		r.Allowed = append(r.Allowed, m.Name)
	}
	plan := func(tenants string) ([]Portal, error) {
		p, err := PlanExport(t.Context(), spdkrpc.NewClient(&answering{Caller: w.socket, method: tenantsMethod, result: "[" + tenants + "]"}), r)
		if err != nil {
			return nil, err
		}
		return p.portals, nil
	}
	portals, err := plan(tenant("a", "lvs-a", "127.0.0.1:4420") + "," + tenant("b", "lvs0", "127.0.0.2"))
	require.NoError(t, err)
	assert.ElementsMatch(t, []Portal{{"TCP", "127.0.0.2", "4420"}, {"TCP", "127.0.0.3", "4420"}}, portals)
	portals, err = plan(tenant("a", "lvs-a", "127.0.0.1:4421"))
	require.NoError(t, err)
	assert.Len(t, portals, 3, "another port")
	_, err = plan(tenant("a", "lvs-a", "127.0.0.1") + "," + tenant("b", "lvs-b", "127.0.0.2") + "," + tenant("c", "lvs-c", "127.0.0.3"))
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "addresses of tenants to which volume lvs0/v0 does not belong: name an address of the storage server (--listen ADDRESS:4420)")
}

// recording is a Caller that records the methods of failed calls, and denies some methods.
type recording struct {
	spdkrpc.Caller
	denied, methods []string
}

func (r *recording) Call(ctx context.Context, method string, params, result any) (err error) {
	defer func() {
		if err != nil {
			r.methods = append(r.methods, method)
		}
	}()
	for _, d := range r.denied {
		if d == method {
			return &spdkrpc.Error{Method: method, Kind: spdkrpc.Denied}
		}
	}
	return r.Caller.Call(ctx, method, params, result)
}

// If the user sees no listener, the refusal lists the addresses that the tenant may use.
func TestRefusalNamesTheTenantsAddresses(t *testing.T) {
	w := newWorld(t, "v26.05")
	tenant := `[{"name":"team","own":true,"quota":{},"used":{},"lvstores":["lvs0"],"bdevs":[],"nqn_prefixes":["nqn.2024-01.com.example:a-"],"iqn_prefixes":[],"key_prefixes":[],"addresses":["192.0.2.1:4420","192.0.2.2"],"hosts":["nqn.*"],"allow":[]}]`
	rpc := spdkrpc.NewClient(&answering{Caller: w.socket, method: tenantsMethod, result: tenant})
	_, err := PlanExport(t.Context(), rpc, Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Allowed: []string{tenantsMethod}})
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "name an address of tenant team (--listen): 192.0.2.1:4420, 192.0.2.2. Nothing was changed")
}

// Without an NQN in the request, a tenant's export gets one that the tenant may use, if its
// configuration determines the prefix. The CSI driver's prefix is never used without being named.
func TestTenantsExportGetsAPermittedNQN(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.call("nvmf_create_transport", `{"trtype":"TCP"}`)
	uuid := w.uuid("lvs0/v0")
	for _, c := range []struct{ volumePrefix, prefixes, requested, nqn, refusal string }{
		{"nqn.2024-01.com.example.team:", `[]`, "", "nqn.2024-01.com.example.team:" + uuid, ""},
		{"nqn.2024-01.com.example.team:", `["nqn.2024-01.com.example:a-"]`, "", "nqn.2024-01.com.example.team:" + uuid, ""},
		{"", `["nqn.2024-01.com.example:a-"]`, "", "nqn.2024-01.com.example:a-" + uuid, ""},
		{driverPrefix, `["nqn.2024-01.com.example:a-"]`, "", "nqn.2024-01.com.example:a-" + uuid, ""},
		{"", `["nqn.2024-01.com.example:a-","nqn.2024-01.com.example:b-"]`, "", "", "its NQNs begin with nqn.2024-01.com.example:a-, nqn.2024-01.com.example:b-"},
		{driverPrefix, `[]`, "", "", "tenant team can export volume lvs0/v0 only as " + driverPrefix + uuid + ", which is a name of the CSI driver's exports: if Kubernetes has no PersistentVolume for the volume, repeat this with --nqn " + driverPrefix + ". Nothing was changed"},
		{driverPrefix, `[]`, driverPrefix, driverPrefix + uuid, ""},
	} {
		var all []string
		for _, m := range rpcschema.Default().Methods() {
			all = append(all, m.Name)
		}
		member := ""
		if c.volumePrefix != "" {
			member = `"volume_nqn_prefix":"` + c.volumePrefix + `",`
		}
		tenant := `[{"name":"team","own":true,"quota":{},"used":{},"lvstores":["lvs0"],"bdevs":[],"nqn_prefixes":` + c.prefixes + `,` + member +
			`"iqn_prefixes":[],"key_prefixes":[],"addresses":["127.0.0.1"],"hosts":["nqn.*"],"allow":[]}]`
		rpc := spdkrpc.NewClient(&answering{Caller: w.socket, method: tenantsMethod, result: tenant})
		p, err := PlanExport(t.Context(), rpc, Request{Volume: "lvs0/v0", NQN: c.requested, Hosts: []string{hostA}, Listen: []Portal{here}, Allowed: all})
		if c.refusal != "" {
			require.ErrorIs(t, err, ErrRefused, c)
			assert.ErrorContains(t, err, c.refusal)
			continue
		}
		require.NoError(t, err, c)
		assert.Equal(t, c.nqn, p.NQN)
	}
}
