package export_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func admittingReplica(volume string, generation uint64, h export.Host) func(context.Context, *export.Service) (any, error) {
	return func(ctx context.Context, s *export.Service) (any, error) {
		err := s.AdmitReplica(ctx, volume, generation, h, mayExport)
		if _, failed := errors.AsType[*spdkrpc.Error](err); errors.Is(err, export.ErrFenced) && !failed {
			return "fenced", nil
		}
		return nil, err
	}
}

// deeperOperations contains operations on replicas, with keys, and on exports left behind by an
// interrupted call.
func deeperOperations(t *testing.T) []faultyOperation {
	n1, n2 := drivertest.MultipathHost("n1"), drivertest.MultipathHost("n2")
	replica := func(t *testing.T, f *fixture) {
		require.NoError(t, f.AdmitReplica(t.Context(), volumeV, 1, n2, mayExport))
	}
	keys := func(t *testing.T, f *fixture) {
		f.fault.Caller = &drivertest.KeyPlacer{Caller: f.fault.Caller, Dir: t.TempDir()}
	}
	admitted := func(h export.Host) func(t *testing.T, f *fixture) {
		return func(t *testing.T, f *fixture) {
			keys(t, f)
			require.NoError(t, admit(t.Context(), f.Service, volumeV, h))
		}
	}
	// A client that must not list the keys has added none.
	mayLeaveKeys := []string{"keyring_get_keys"}
	one, other := withKeys(t, n1, oneKey, ""), withKeys(t, n1, otherKey, oneKey)
	return []faultyOperation{
		{name: "admit a replica", only: export.TCP, do: admittingReplica(volumeV, 1, n1)},
		{name: "admit a replica again", only: export.TCP, prepare: replica, do: admittingReplica(volumeV, 2, n1)},
		{name: "admit a replica that others may use", only: export.TCP, prepare: func(t *testing.T, f *fixture) {
			replica(t, f)
			require.NoError(t, f.rpc.NVMfSubsystemAllowAnyHost(t.Context(), spdkrpc.NVMfSubsystemAllowAnyHostParams{NQN: export.ReplicaNQN(volumeV, 1), AllowAnyHost: true}))
		}, do: admittingReplica(volumeV, 1, n1)},
		{name: "admit a replica to a fenced node", only: export.TCP, prepare: func(t *testing.T, f *fixture) {
			replica(t, f)
			_, err := f.Fence(t.Context(), n2, "n2", false)
			require.NoError(t, err)
			require.NoError(t, f.rpc.NVMfSubsystemAddHost(t.Context(), spdkrpc.NVMfSubsystemAddHostParams{NQN: export.ReplicaNQN(volumeV, 1), Host: n2.NQN}))
		}, do: admittingReplica(volumeV, 1, n2)},
		{name: "withdraw a replica", only: export.TCP, prepare: replica, do: func(ctx context.Context, s *export.Service) (any, error) { return nil, s.WithdrawReplica(ctx, volumeV) }},
		{name: "admit with a key", only: export.TCP, repeat: true, prepare: keys, do: admitting(volumeV, one)},
		{name: "admit with other keys", only: export.TCP, repeat: true, despite: mayLeaveKeys, prepare: admitted(one), do: admitting(volumeV, other)},
		{name: "admit with a key what was admitted without", only: export.TCP, repeat: true, prepare: admitted(n1), do: admitting(volumeV, one)},
		{name: "withdraw with keys", only: export.TCP, repeat: true, despite: mayLeaveKeys, prepare: admitted(other), do: func(ctx context.Context, s *export.Service) (any, error) {
			return nil, s.Withdraw(ctx, volumeV, &other)
		}},
		{name: "admit to an unused shared export", only: export.TCP, prepare: func(t *testing.T, f *fixture) {
			_, err := f.Share(t.Context(), volumeV, n2, mayExport)
			require.NoError(t, err)
			for _, host := range []string{n2.NQN, n2.Multipath} {
				require.NoError(t, f.rpc.NVMfSubsystemRemoveHost(t.Context(), spdkrpc.NVMfSubsystemRemoveHostParams{NQN: export.NQN(volumeV), Host: host}))
			}
		}, do: admitting(volumeV, n1)},
		{name: "admit with CHAP what was admitted without", only: export.ISCSI, repeat: true, prepare: func(t *testing.T, f *fixture) { require.NoError(t, admit(t.Context(), f.Service, volumeV, n1)) },
			do: admitting(volumeV, withPasswords(t, n1, "correct-horse-1", ""))},
		{name: "admit despite a claim that remained", only: export.ISCSI, prepare: func(t *testing.T, f *fixture) {
			require.NoError(t, admit(t.Context(), f.Service, volumeW, n1))
			require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 999, Initiators: []string{"iqn.2026-11.io.spdkgate:portal-group:left"}, Netmasks: []string{"ANY"}}))
		}, do: admitting(volumeV, n1)},
		{name: "fence", prepare: func(t *testing.T, f *fixture) {
			for _, v := range []string{volumeV, volumeW} {
				require.NoError(t, admit(t.Context(), f.Service, v, n1))
			}
		}, do: func(ctx context.Context, s *export.Service) (any, error) {
			_, err := s.Fence(ctx, n1, "n1", false)
			return nil, err
		}},
	}
}

// If another controller withdraws all exports before any call of an operation, the operation
// succeeds or can be repeated, and then everything can be withdrawn.
func TestOperationsSurviveConcurrentWithdrawals(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for _, op := range slices.Concat(operationsThatMayFail(t), deeperOperations(t)) {
			if op.only == "" || op.only == tr {
				t.Run(string(tr)+"/"+op.name, func(t *testing.T) { withdrawBeforeEachCall(t, tr, op) })
			}
		}
	}
}

func withdrawBeforeEachCall(t *testing.T, tr export.Transport, op faultyOperation) {
	for n := 1; ; n++ {
		f := newFixture(t, tr, "")
		for _, id := range []string{volumeV, volumeW} {
			f.malloc(t, id)
		}
		direct := f.fault.Caller
		if op.prepare != nil {
			op.prepare(t, f)
		}
		withdrawAll := func() {
			other := f.otherController(direct)
			for _, id := range []string{volumeV, volumeW} {
				if tr == export.TCP {
					_ = other.WithdrawReplica(t.Context(), id)
				}
				assert.NoError(t, other.Withdraw(t.Context(), id, nil))
			}
		}
		f.fault.BeforeCall(n, withdrawAll)
		_, err := op.do(t.Context(), f.Service)
		where := fmt.Sprintf("before call %d, %s: %v", n, f.fault.FailedMethod(), err)
		if f.fault.FailedMethod() == "" {
			require.NoError(t, err)
			return
		}
		f.fault.Reset()
		if _, err = op.do(t.Context(), f.Service); !errors.Is(err, export.ErrBusy) { // the first call's claim may remain for a while
			require.NoError(t, err, where)
		}
		withdrawAll()
		assert.Empty(t, f.exportedVolumes(t), where)
	}
}

// exportedVolumes lists the subsystems with namespaces, and the target nodes.
func (f *fixture) exportedVolumes(t *testing.T) (names []string) {
	t.Helper()
	subsystems, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	for _, s := range subsystems {
		if len(s.Namespaces) > 0 {
			names = append(names, s.NQN)
		}
	}
	nodes, err := f.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// Subsystems of a replica that exist only in the saved configuration are removed from it, except
// the subsystem of the current publication.
func TestReplicaExportsAreRemovedFromSavedConfiguration(t *testing.T) {
	h := drivertest.Host("n1")
	missing := func() (list []spdkrpc.ProxyMissingExport) {
		list = append(list, spdkrpc.ProxyMissingExport{IQN: new("iqn.2026-11.io.spdkgate:other")})
		for _, nqn := range []string{export.ReplicaNQN(volumeW, 1), export.NQN(volumeV), export.ReplicaNQN(volumeV, 2), export.ReplicaNQN(volumeV, 1)} {
			list = append(list, spdkrpc.ProxyMissingExport{NQN: &nqn, Method: "nvmf_create_subsystem"})
		}
		return list
	}
	first, second := "subsystem "+export.ReplicaNQN(volumeV, 1), "subsystem "+export.ReplicaNQN(volumeV, 2)
	withdraw := func(ctx context.Context, s *export.Service) error { return s.WithdrawReplica(ctx, volumeV) }
	lost := &spdkrpc.Error{Method: "nvmf_delete_subsystem", Kind: spdkrpc.OutcomeUnknown}
	for name, c := range map[string]struct {
		do      func(ctx context.Context, s *export.Service) error
		fails   error
		removed []string
	}{
		"withdraw": {withdraw, nil, []string{second, first}},
		"admit": {func(ctx context.Context, s *export.Service) error {
			return s.AdmitReplica(ctx, volumeV, 2, h, mayExport)
		}, nil, []string{first}},
		"lost reply": {withdraw, lost, []string{second}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, export.TCP, "")
			f.malloc(t, volumeV)
			saved := &savedExports{savedObjects{Caller: f.fault, missing: missing(), fails: c.fails}}
			err := c.do(t.Context(), f.through(saved))
			require.ErrorIs(t, err, c.fails)
			assert.Equal(t, c.removed, saved.removed)
			if c.fails != nil {
				assert.ErrorContains(t, err, strings.TrimPrefix(second, "subsystem "))
			}
		})
	}
}

// Fence removes the host from each saved subsystem, and ignores saved objects of other protocols.
func TestFenceRemovesHostFromEverySavedSubsystem(t *testing.T) {
	f, h := newFixture(t, export.TCP, ""), drivertest.Host("n1")
	var list []spdkrpc.ProxyMissingExport
	for _, nqn := range []*string{new(export.NQN(volumeV)), nil, new(export.NQN(volumeW))} {
		list = append(list, spdkrpc.ProxyMissingExport{NQN: nqn, Host: &h.NQN})
	}
	saved := &savedExports{savedObjects{Caller: f.fault, missing: list}}
	_, err := f.through(saved).Fence(t.Context(), h, "n1", true)
	require.NoError(t, err)
	assert.Empty(t, saved.removed, "a dry run changes nothing")
	all, err := f.through(saved).Fence(t.Context(), h, "n1", false)
	require.NoError(t, err)
	assert.Equal(t, []string{"host " + h.NQN, "host " + h.NQN}, saved.removed)
	assert.Equal(t, []export.Fencing{export.MarkFence,
		{Export: export.NQN(volumeV), Change: "remove host " + h.NQN + " from the saved configuration"},
		{Export: export.NQN(volumeW), Change: "remove host " + h.NQN + " from the saved configuration"}}, all)
}
