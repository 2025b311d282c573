package exports

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func TestWithdrawalRemovesHostsAndExports(t *testing.T) {
	w := newWorld(t, "v26.05")
	withdraw := func(x Withdrawal) (*Plan, error) {
		p, err := PlanWithdrawal(t.Context(), w.rpc, x)
		if err == nil {
			err = p.Run(t.Context(), func(Step) {})
		}
		return p, err
	}
	p, err := withdraw(Withdrawal{Volume: "lvs0/v0"})
	require.NoError(t, err)
	assert.Empty(t, p.Steps, "it is not exported")
	nqn := w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostB}, Listen: []Portal{here}}).NQN
	require.NoError(t, w.sim.ConnectHost(nqn, hostA))
	assert.Equal(t, []string{hostA}, w.list()[0].Connected)
	for _, x := range []Withdrawal{{}, {Hosts: []string{hostA}}, {Hosts: []string{hostB, hostA}}} {
		x.Volume = "lvs0/v0"
		_, err = withdraw(x)
		require.ErrorIs(t, err, ErrRefused)
		assert.ErrorContains(t, err, "host "+hostA+" is connected")
	}
	_, err = withdraw(Withdrawal{Volume: "lvs0/v0", NQN: "nqn.2024-01.com.example:other"})
	require.ErrorIs(t, err, ErrRefused)
	p, err = withdraw(Withdrawal{Volume: "lvs0/v0", Hosts: []string{hostB}})
	require.NoError(t, err)
	assert.Equal(t, []string{"nvmf_subsystem_remove_host"}, methods(p))
	p, err = withdraw(Withdrawal{Volume: w.v0, Hosts: []string{hostB}})
	require.NoError(t, err)
	assert.Empty(t, p.Steps)
	w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostB, hostC}, Shared: true})
	w.sim.Inject(spdktest.Fault{Method: "nvmf_subsystem_remove_host", Skip: 1, Do: spdktest.Fail})
	_, err = withdraw(Withdrawal{Volume: "lvs0/v0", Hosts: []string{hostB, hostC}})
	require.ErrorContains(t, err, "These calls were made and stay in effect: nvmf_subsystem_remove_host")
	_, err = withdraw(Withdrawal{Volume: "lvs0/v0", Hosts: []string{hostB, hostC}})
	require.NoError(t, err, "the command can be repeated")
	p, err = withdraw(Withdrawal{Volume: "lvs0/v0", Hosts: []string{hostA}, Disconnect: true})
	require.NoError(t, err)
	assert.Equal(t, []string{"nvmf_delete_subsystem"}, methods(p), "no host is left")
	assert.Empty(t, w.list())

	w.export(Request{Volume: "lvs0/v0", AnyHost: true, Listen: []Portal{here}})
	_, err = withdraw(Withdrawal{Volume: "lvs0/v0", Hosts: []string{hostA}})
	require.ErrorIs(t, err, ErrRefused)
	w.call("nvmf_create_subsystem", `{"nqn":"`+driverPrefix+`x"}`)
	w.call("nvmf_subsystem_add_ns", `{"nqn":"`+driverPrefix+`x","namespace":{"bdev_name":"lvs0/v1"}}`)
	_, err = withdraw(Withdrawal{Volume: "lvs0/v1"})
	require.ErrorContains(t, err, "a name of the CSI driver")
	p, err = withdraw(Withdrawal{Volume: "lvs0/v1", NQN: driverPrefix + "x"})
	require.NoError(t, err)
	assert.Contains(t, p.Warnings[0], "is a name of the CSI driver's exports")
}

// The export of a deleted volume can be withdrawn if its subsystem exports nothing else.
func TestExportOfADeletedVolumeIsWithdrawn(t *testing.T) {
	w := newWorld(t, "v26.05")
	const nqn = "nqn.2024-01.com.example:v1"
	w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}})
	w.export(Request{Volume: "lvs0/v1", NQN: nqn, Hosts: []string{hostA}, Listen: []Portal{here}})
	refused := func(x Withdrawal, says string) {
		t.Helper()
		_, err := PlanWithdrawal(t.Context(), w.rpc, x)
		require.ErrorIs(t, err, ErrRefused)
		assert.ErrorContains(t, err, says)
	}
	w.call("bdev_lvol_delete", `{"name":"lvs0/v0"}`)
	refused(Withdrawal{Volume: "lvs0/v0"}, "no volume lvs0/v0 is visible to this user")
	refused(Withdrawal{Volume: "lvs0/v0"}, "add --nqn")
	refused(Withdrawal{Volume: "lvs0/v0", NQN: "nqn.2024-01.com.example:none"}, "no volume lvs0/v0")
	refused(Withdrawal{Volume: "lvs0/v0", NQN: nqn}, nqn+" exports ")
	refused(Withdrawal{Volume: w.v0, Hosts: []string{hostA}}, "no volume ")
	w.call("bdev_lvol_delete", `{"name":"lvs0/v1"}`)
	assert.Contains(t, Table(w.list(), false), "delete it (spdk-proxy unexport VOLUME --nqn "+nqn+")")
	for _, x := range []Withdrawal{{Volume: w.v0}, {Volume: "lvs0/v1", NQN: nqn}} {
		p, err := PlanWithdrawal(t.Context(), w.rpc, x)
		require.NoError(t, err)
		assert.Equal(t, []string{"nvmf_delete_subsystem"}, methods(p))
		require.NoError(t, p.Run(t.Context(), func(Step) {}))
	}
	assert.Empty(t, w.list())
}
