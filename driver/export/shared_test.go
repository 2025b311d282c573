package export_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A recorder records the methods of calls that change the target.
type recorder struct {
	spdkrpc.Caller
	mu      sync.Mutex
	changes []string
}

func (r *recorder) Call(ctx context.Context, method string, params, result any) error {
	if m, ok := rpcschema.Default().Method(method); ok && m.Mutates {
		r.mu.Lock()
		r.changes = append(r.changes, method)
		r.mu.Unlock()
	}
	return r.Caller.Call(ctx, method, params, result)
}

func (r *recorder) take() (changes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changes, r.changes = r.changes, nil
	return changes
}

func hostsOf(hosts ...export.Host) (list []spdkrpc.NVMfSubsystemHost) {
	for _, h := range hosts {
		list = append(list, spdkrpc.NVMfSubsystemHost{NQN: h.NQN}, spdkrpc.NVMfSubsystemHost{NQN: h.Multipath})
	}
	return list
}

// Adding or removing a host of a shared export changes only the admission of that host, so the
// other hosts are not interrupted.
func TestHostsOfASharedExportDoNotInterfere(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
		t.Run(release, func(t *testing.T) {
			f := newFixture(t, export.TCP, release)
			r := &recorder{Caller: f.fault}
			s, ctx, id := f.through(r), t.Context(), f.bdev(t)
			n1, n2, n3 := drivertest.MultipathHost("n1"), drivertest.MultipathHost("n2"), drivertest.MultipathHost("n3")
			share := func(h export.Host) {
				t.Helper()
				admission, err := s.Share(ctx, id, h, mayExport)
				require.NoError(t, err)
				require.Equal(t, export.Admission{Multipath: true}, admission)
			}
			share(n1)
			r.take()
			share(n2)
			assert.Equal(t, []string{"nvmf_subsystem_add_host", "nvmf_subsystem_add_host"}, r.take())
			share(n1)
			share(n2)
			assert.Empty(t, r.take(), "repeated calls change nothing")
			assert.ElementsMatch(t, hostsOf(n1, n2), f.subsystem(t, id).Hosts)

			require.ErrorIs(t, admit(ctx, s, id, n3), export.ErrInUse, "n3 asks for the volume alone")
			require.ErrorIs(t, admit(ctx, s, id, n1), export.ErrInUse, "n1 too")
			require.ErrorIs(t, s.RemoveUnused(ctx, id), export.ErrInUse)
			r.take()
			for range 2 {
				require.NoError(t, s.Withdraw(ctx, id, &n1))
			}
			assert.Equal(t, []string{"nvmf_subsystem_remove_host", "nvmf_subsystem_remove_host"}, r.take())
			assert.ElementsMatch(t, hostsOf(n2), f.subsystem(t, id).Hosts)
			share(n1)
			require.NoError(t, s.Withdraw(ctx, id, &n1))
			require.NoError(t, s.Withdraw(ctx, id, &n2))
			exists, err := s.Exists(ctx, id)
			require.NoError(t, err)
			assert.False(t, exists, "no host is left")

			require.NoError(t, admit(ctx, s, id, n1))
			_, err = s.Share(ctx, id, n2, mayExport)
			require.ErrorIs(t, err, export.ErrInUse, "n1 has the volume alone")
			require.NoError(t, s.Withdraw(ctx, id, &n1))
		})
	}
}

// If an interrupted call left behind a subsystem that was created for several hosts but admits
// none, an exclusive export replaces that subsystem, and vice versa.
func TestLeftoverSubsystemIsReplaced(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	ctx, id, n1, n2 := t.Context(), f.bdev(t), drivertest.Host("n1"), drivertest.Host("n2")
	interrupted := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "nvmf_subsystem_add_host", Before: func(context.Context, any) error {
		return &spdkrpc.Error{Kind: spdkrpc.Unreachable}
	}})
	require.Error(t, admit(ctx, interrupted, id, n1))
	for _, h := range []export.Host{n1, n2} {
		_, err := f.Share(ctx, id, h, mayExport)
		require.NoError(t, err)
	}
	require.NoError(t, f.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: export.NQN(id), Host: n1.NQN}))
	require.NoError(t, f.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: export.NQN(id), Host: n2.NQN}))
	require.NoError(t, admit(ctx, f.Service, id, n1))
	_, err := f.Share(ctx, id, n2, mayExport)
	require.ErrorIs(t, err, export.ErrInUse)
}

// If two controllers admit two hosts at the same time, one of them exclusively, the volume is never
// exported to both.
func TestSharedAndExclusiveExportsExcludeEachOther(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	id, n1, n2 := f.bdev(t), drivertest.Host("n1"), drivertest.Host("n2")
	var second error
	first := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "nvmf_create_subsystem", Before: func(ctx context.Context, _ any) error {
		_, second = f.otherController(f.fault).Share(ctx, id, n2, mayExport)
		return nil
	}})
	require.ErrorIs(t, admit(t.Context(), first, id, n1), export.ErrInUse)
	require.NoError(t, second)
	assert.Equal(t, []spdkrpc.NVMfSubsystemHost{{NQN: n2.NQN}}, f.subsystem(t, id).Hosts)
}

// An export created by SPDK's spdk-csi, which admits every host, can be restricted to a single
// host.
func TestLegacyExportIsTakenOver(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	ctx, id, n1, n2 := t.Context(), f.bdev(t), drivertest.Host("n1"), drivertest.Host("n2")
	drivertest.LegacyExport(t, f.rpc, f.Config, id)
	_, err := f.Share(ctx, id, n1, mayExport)
	require.NoError(t, err)
	_, err = f.Share(ctx, id, n2, mayExport)
	require.ErrorIs(t, err, export.ErrInUse)
	require.NoError(t, f.Withdraw(ctx, id, &n1))
	for _, h := range []export.Host{n1, n2} {
		_, err = f.Share(ctx, id, h, mayExport)
		require.NoError(t, err)
	}
}

func TestISCSIExportsCannotBeShared(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	_, err := f.Share(t.Context(), f.bdev(t), drivertest.Host("n1"), mayExport)
	require.ErrorIs(t, err, export.ErrNotShareable)
}

// If any RPC fails or loses its reply while the second host is being admitted or the first host is
// being removed, a retry completes the change. The other host can use the volume throughout.
func TestSharingIsCompletedAfterFailures(t *testing.T) {
	n1, n2 := drivertest.MultipathHost("n1"), drivertest.MultipathHost("n2")
	for name, inject := range map[string]func(*drivertest.FaultyCaller, int){
		"lost call":  func(c *drivertest.FaultyCaller, n int) { c.FailCall(n, false, false) },
		"lost reply": func(c *drivertest.FaultyCaller, n int) { c.FailCall(n, true, false) },
		"died":       func(c *drivertest.FaultyCaller, n int) { c.FailCall(n, true, true) },
		"refused":    func(c *drivertest.FaultyCaller, n int) { c.RefuseCall(n) },
	} {
		for n, more := 1, true; more; n++ {
			t.Run(fmt.Sprintf("%s/call %d", name, n), func(t *testing.T) {
				f := newFixture(t, export.TCP, "")
				ctx, id := t.Context(), f.bdev(t)
				s := f.listeningOn(f.Listen[0], export.Portal{Addr: "::1", Port: "4421"})
				share := func(h export.Host) error { _, err := s.Share(ctx, id, h, mayExport); return err }
				require.NoError(t, share(n1))
				inject(f.fault, n)
				_ = share(n2)
				more = f.fault.FailedMethod() != ""
				f.fault.Reset()
				assert.Subset(t, f.subsystem(t, id).Hosts, hostsOf(n1))
				require.NoError(t, share(n2))
				assert.ElementsMatch(t, hostsOf(n1, n2), f.subsystem(t, id).Hosts)
				assert.Len(t, f.subsystem(t, id).ListenAddresses, 2)
				inject(f.fault, n)
				_ = s.Withdraw(ctx, id, &n1)
				f.fault.Reset()
				assert.Subset(t, f.subsystem(t, id).Hosts, hostsOf(n2))
				require.NoError(t, s.Withdraw(ctx, id, &n1))
				assert.ElementsMatch(t, hostsOf(n2), f.subsystem(t, id).Hosts)
				if !more {
					require.Greater(t, n, 6)
				}
			})
			more = more && !t.Failed()
		}
	}
}
