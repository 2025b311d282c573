package export_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// volumeV and volumeW are bdevs on each target in TestExportRecoversFromFailureOfAnyCall.
var volumeV, volumeW = uuid.NewSHA1(uuid.NameSpaceDNS, []byte("v")).String(), uuid.NewSHA1(uuid.NameSpaceDNS, []byte("w")).String()

type faultyOperation struct {
	name    string
	only    export.Transport // transport to test; empty means all
	prepare func(t *testing.T, f *fixture)
	do      func(ctx context.Context, s *export.Service) (any, error)
	leaves  bool     // whether a failure leaves behind initiator groups, which Inspect finds
	repeat  bool     // whether a lost reply may fail the operation, which must then be repeated
	despite []string // the reading methods that may fail without failing the operation
}

func admitting(volume string, h export.Host) func(context.Context, *export.Service) (any, error) {
	return func(ctx context.Context, s *export.Service) (any, error) { return s.Admit(ctx, volume, h, mayExport) }
}

func operationsThatMayFail(t *testing.T) []faultyOperation {
	n1, n2 := drivertest.MultipathHost("n1"), drivertest.MultipathHost("n2")
	admitted := func(volumes ...string) func(*testing.T, *fixture) {
		return func(t *testing.T, f *fixture) {
			for _, v := range volumes {
				require.NoError(t, admit(t.Context(), f.Service, v, n1))
			}
		}
	}
	shared := func(t *testing.T, f *fixture) {
		for _, h := range []export.Host{n1, n2} {
			_, err := f.Share(t.Context(), volumeV, h, mayExport)
			require.NoError(t, err)
		}
	}
	fenced := func(t *testing.T, f *fixture) {
		admitted(volumeV)(t, f)
		_, err := f.Fence(t.Context(), n1, "n1", false)
		require.NoError(t, err)
	}
	legacy := func(t *testing.T, f *fixture) { drivertest.LegacyExport(t, f.rpc, f.Config, volumeW) }
	withKeys := withPasswords(t, n1, "correct-horse-1", "battery-staple")
	type ctx = context.Context
	type service = *export.Service
	return []faultyOperation{
		{name: "admit", do: admitting(volumeV, n1)},
		{name: "admit again", prepare: admitted(volumeV), do: admitting(volumeV, n1)},
		{name: "admit a second volume", prepare: admitted(volumeW), do: admitting(volumeV, n1)},
		{name: "admit with CHAP", only: export.ISCSI, do: admitting(volumeV, withKeys)},
		{name: "admit with other passwords", only: export.ISCSI,
			prepare: func(t *testing.T, f *fixture) { require.NoError(t, admit(t.Context(), f.Service, volumeV, withKeys)) },
			do:      admitting(volumeV, withPasswords(t, n1, "correct-horse-2", ""))},
		{name: "admit to a target node without mappings", only: export.ISCSI, prepare: func(t *testing.T, f *fixture) {
			admitted(volumeV)(t, f)
			f.unmap(t, volumeV)
		}, do: admitting(volumeV, n1)},
		{name: "admit to a target node open to any initiator", only: export.ISCSI, prepare: func(t *testing.T, f *fixture) {
			admitted(volumeV)(t, f)
			require.NoError(t, f.rpc.ISCSICreateInitiatorGroup(t.Context(), spdkrpc.ISCSICreateInitiatorGroupParams{Tag: 7, Initiators: []string{"ANY"}, Netmasks: []string{"ANY"}}))
			open := spdkrpc.ISCSIPGIGMap{PGTag: f.portalGroups(t)[0].Tag, IGTag: 7}
			require.NoError(t, f.rpc.ISCSITargetNodeAddPGIGMaps(t.Context(), spdkrpc.ISCSITargetNodeAddPGIGMapsParams{Name: export.IQN(volumeV), PGIGMaps: []spdkrpc.ISCSIPGIGMap{open}}))
		}, do: admitting(volumeV, n1)},
		{name: "admit to a target node without LUN", only: export.ISCSI, prepare: func(t *testing.T, f *fixture) {
			admitted(volumeV)(t, f)
			require.NoError(t, f.rpc.BdevMallocDelete(t.Context(), spdkrpc.BdevMallocDeleteParams{Name: volumeV}))
			f.malloc(t, volumeV)
		}, do: admitting(volumeV, n1)},
		{name: "withdraw with CHAP", only: export.ISCSI,
			prepare: func(t *testing.T, f *fixture) { require.NoError(t, admit(t.Context(), f.Service, volumeV, withKeys)) },
			do:      func(c ctx, s service) (any, error) { return nil, s.Withdraw(c, volumeV, &withKeys) }},
		{name: "admit to a legacy export", only: export.TCP, prepare: legacy, do: admitting(volumeW, n1)},
		{name: "share", only: export.TCP, prepare: func(t *testing.T, f *fixture) {
			_, err := f.Share(t.Context(), volumeV, n2, mayExport)
			require.NoError(t, err)
		}, do: func(c ctx, s service) (any, error) { return s.Share(c, volumeV, n1, mayExport) }},
		{name: "withdraw", prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return nil, s.Withdraw(c, volumeV, &n1) }},
		{name: "withdraw one of two hosts", only: export.TCP, prepare: shared, do: func(c ctx, s service) (any, error) { return nil, s.Withdraw(c, volumeV, &n1) }},
		{name: "withdraw all", leaves: true, prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return nil, s.Withdraw(c, volumeV, nil) }},
		{name: "withdraw both hosts", only: export.TCP, prepare: shared, do: func(c ctx, s service) (any, error) { return nil, s.Withdraw(c, volumeV, nil) }},
		{name: "withdraw without an export", do: func(c ctx, s service) (any, error) { return nil, s.Withdraw(c, volumeV, &n1) }},
		{name: "remove an unused export", only: export.TCP, prepare: func(t *testing.T, f *fixture) {
			admitted(volumeV)(t, f)
			for _, host := range []string{n1.NQN, n1.Multipath} {
				require.NoError(t, f.rpc.NVMfSubsystemRemoveHost(t.Context(), spdkrpc.NVMfSubsystemRemoveHostParams{NQN: export.NQN(volumeV), Host: host}))
			}
		}, do: func(c ctx, s service) (any, error) { return nil, s.RemoveUnused(c, volumeV) }},
		{name: "remove an unused iSCSI export", only: export.ISCSI, prepare: func(t *testing.T, f *fixture) {
			admitted(volumeV)(t, f)
			f.unmap(t, volumeV)
		}, do: func(c ctx, s service) (any, error) { return nil, s.RemoveUnused(c, volumeV) }},
		{name: "unfence", prepare: fenced, do: func(c ctx, s service) (any, error) { _, err := s.Unfence(c, n1, false); return nil, err }},
		{name: "fencing dry run", prepare: admitted(volumeV, volumeW), do: func(c ctx, s service) (any, error) { return s.Fence(c, n1, "n1", true) }},
		{name: "unfencing dry run", prepare: fenced, do: func(c ctx, s service) (any, error) { return s.Unfence(c, n1, true) }},
		{name: "exists", prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return s.Exists(c, volumeV) }},
		{name: "does not exist", do: func(c ctx, s service) (any, error) { return s.Exists(c, volumeV) }},
		{name: "hosts", prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return s.Hosts(c, []string{volumeV, volumeW}) }},
		{name: "inspect", prepare: fenced, do: func(c ctx, s service) (any, error) { return s.Inspect(c) }},
		{name: "connected", prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return s.Connected(c, volumeV) }},
		{name: "connected to each", despite: []string{"nvmf_subsystem_get_controllers"}, prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return s.ConnectedEach(c, []string{volumeV, volumeW}) }},
		{name: "holds I/O", only: export.TCP, despite: []string{"nvmf_get_subsystems"}, prepare: admitted(volumeV), do: func(c ctx, s service) (any, error) { return nil, s.CheckHoldsIO(c, volumeV) }},
		{name: "remove an unused group", only: export.ISCSI, prepare: func(t *testing.T, f *fixture) {
			admitted(volumeV)(t, f)
			require.NoError(t, f.rpc.ISCSIDeleteTargetNode(t.Context(), spdkrpc.ISCSIDeleteTargetNodeParams{Name: export.IQN(volumeV)}))
		}, do: func(c ctx, s service) (any, error) {
			all, err := s.Inspect(c)
			if err != nil {
				return nil, err
			}
			for _, g := range all.Unused {
				if err := s.RemoveUnusedGroup(c, g); err != nil {
					return nil, err
				}
			}
			return nil, nil
		}},
	}
}

// TestExportRecoversFromFailureOfAnyCall makes each call of each operation fail. The operation must
// report success only if all of its steps are done, and a retry must complete it.
func TestExportRecoversFromFailureOfAnyCall(t *testing.T) {
	if realtarget.Given() {
		t.Skip("needs simulated targets, one for each failure")
	}
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for _, op := range slices.Concat(operationsThatMayFail(t), deeperOperations(t)) {
			if op.only == "" || op.only == tr {
				t.Run(string(tr)+"/"+op.name, func(t *testing.T) { failEachCall(t, tr, op) })
			}
		}
	}
}

func failEachCall(t *testing.T, tr export.Transport, op faultyOperation) {
	start := func() *fixture {
		f := newFixture(t, tr, "")
		for _, id := range []string{volumeV, volumeW} {
			f.malloc(t, id)
		}
		if op.prepare != nil {
			op.prepare(t, f)
		}
		f.fault.Reset()
		return f
	}
	f := start()
	result, err := op.do(t.Context(), f.Service)
	require.NoError(t, err)
	calls, want := f.fault.Calls(), f.exported(t, op.leaves)
	require.Positive(t, calls)
	for n := 1; n <= calls; n++ {
		for kind, inject := range map[string]func(*drivertest.FaultyCaller){
			"lost call, caller dies": func(c *drivertest.FaultyCaller) { c.FailCall(n, false, true) },
			"refused":                func(c *drivertest.FaultyCaller) { c.RefuseCall(n) },
			"lost reply":             func(c *drivertest.FaultyCaller) { c.FailCall(n, true, false) },
		} {
			f := start()
			inject(f.fault)
			got, err := op.do(t.Context(), f.Service)
			method := f.fault.FailedMethod()
			where := fmt.Sprintf("call %d, %s: %s", n, method, kind)
			switch {
			case kind == "lost reply" && errors.Is(err, export.ErrBusy):
				continue // another controller may have created the initiator group that claims the portal group
			case kind == "refused" && strings.Contains(where, "iscsi_delete_auth_group"):
				continue // SPDK refuses this call only if there is no such object
			}
			if strings.Contains(where, "iscsi_delete_auth_group") {
				kind = "not read back"
			}
			changes := !strings.Contains(where, "_get_") && !strings.Contains(where, "spdkgate_config_await")
			f.fault.Reset()
			if !changes && !slices.Contains(op.despite, method) {
				require.Error(t, err, "%s: the target's state is unknown", where)
			}
			if err == nil {
				assert.Equal(t, withoutTimes(result), withoutTimes(got), where)
				assert.Equal(t, want, f.exported(t, op.leaves), where)
			}
			if changes && kind == "lost reply" && !op.repeat {
				require.NoError(t, err, "%s: the target shows that the call was executed", where)
			}
			if _, err = op.do(t.Context(), f.Service); errors.Is(err, export.ErrBusy) {
				continue // the first call's claim looks like that of another controller until it is old enough
			}
			require.NoError(t, err, where)
			assert.Equal(t, want, f.exported(t, op.leaves), where)
		}
	}
}

// unmap removes all mappings of a volume's target node, so that no initiator can log in.
func (f *fixture) unmap(t *testing.T, id string) {
	t.Helper()
	node := f.targetNode(t, id)
	require.NoError(t, f.rpc.ISCSITargetNodeRemovePGIGMaps(t.Context(), spdkrpc.ISCSITargetNodeRemovePGIGMapsParams{Name: node.Name, PGIGMaps: node.PGIGMaps}))
}

func isTime(serial string) bool {
	_, err := time.Parse("20060102T150405Z", serial)
	return err == nil
}

// withoutTimes removes fencing times from the result of an operation.
func withoutTimes(result any) any {
	if all, ok := result.(export.Inspection); ok {
		for i := range all.Fenced {
			all.Fenced[i].Since = time.Time{}
		}
	}
	return result
}

// exported returns everything that a target exports. withoutGroups omits the initiator groups, for
// operations that may leave behind unused groups.
func (f *fixture) exported(t *testing.T, withoutGroups bool) []any {
	t.Helper()
	subsystems, err := f.rpc.NVMfGetSubsystems(t.Context(), spdkrpc.NVMfGetSubsystemsParams{})
	require.NoError(t, err)
	for i, s := range subsystems {
		if s.SerialNumber != nil && isTime(*s.SerialNumber) { // a fence mark
			subsystems[i].SerialNumber = new("time")
		}
		// Sort the hosts, because they are added concurrently.
		slices.SortFunc(s.Hosts, func(a, b spdkrpc.NVMfSubsystemHost) int { return strings.Compare(a.NQN, b.NQN) })
	}
	nodes, err := f.rpc.ISCSIGetTargetNodes(t.Context())
	require.NoError(t, err)
	secrets, err := f.rpc.ISCSIGetAuthGroups(t.Context())
	require.NoError(t, err)
	for _, g := range secrets {
		for i := range g.Secrets {
			if strings.HasPrefix(g.Secrets[i].User, "spdkgate volume ") {
				g.Secrets[i].Secret = "random"
			}
		}
	}
	all := []any{subsystems, nodes, f.portalGroups(t), secrets}
	if !withoutGroups {
		all = append(all, f.initiatorGroups(t))
	}
	return all
}
