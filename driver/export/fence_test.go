package export_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// admitted counts the exports that a host can use.
func (f *fixture) admitted(t *testing.T, h export.Host, volumes ...string) (n int) {
	t.Helper()
	hosts, err := f.Hosts(t.Context(), volumes)
	require.NoError(t, err)
	for _, of := range hosts {
		for _, name := range of {
			if name == h.NQN || name == h.IQN {
				n++
			}
		}
	}
	return n
}

// A fenced host loses access to all exports, and no other export admits it. Other hosts keep their
// access.
func TestFencedHostLosesAllExports(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for _, release := range []string{"v24.01", "v26.05", "v26.09"} {
			t.Run(string(tr)+" "+release, func(t *testing.T) {
				f := newFixture(t, tr, release)
				ctx, n1, n2 := t.Context(), drivertest.MultipathHost("n1"), drivertest.MultipathHost("n2")
				v, w, x, others := f.bdev(t), f.bdev(t), f.bdev(t), f.bdev(t)
				for _, id := range []string{v, w, x} {
					require.NoError(t, admit(ctx, f.Service, id, n1))
				}
				require.NoError(t, admit(ctx, f.Service, others, n2))

				changes, err := f.Fence(ctx, n1, "worker 1, ä", true)
				require.NoError(t, err)
				assert.Len(t, changes, 4, "the mark, and three exports")
				assert.Equal(t, 3, f.admitted(t, n1, v, w, x), "nothing was changed")
				done, err := f.Fence(ctx, n1, "worker 1, ä", false)
				require.NoError(t, err)
				assert.ElementsMatch(t, changes, done)
				again, err := f.Fence(ctx, n1, "worker 1, ä", false)
				require.NoError(t, err)
				assert.Empty(t, again)
				assert.Zero(t, f.admitted(t, n1, v, w, x, others))
				assert.Equal(t, 1, f.admitted(t, n2, others))

				for range 2 {
					require.ErrorIs(t, admit(ctx, f.Service, v, n1), export.ErrFenced)
				}
				assert.Zero(t, f.admitted(t, n1, v))
				require.NoError(t, admit(ctx, f.Service, v, n2), "another node takes over")
				require.NoError(t, f.Withdraw(ctx, v, &n1), "Kubernetes detaches the fenced node")
				assert.Equal(t, 2, f.admitted(t, n2, v, others))

				was, err := f.Unfence(ctx, n1, true)
				require.NoError(t, err)
				assert.True(t, was)
				require.ErrorIs(t, admit(ctx, f.Service, w, n1), export.ErrFenced)
				for _, want := range []bool{true, false} {
					was, err = f.Unfence(ctx, n1, false)
					require.NoError(t, err)
					assert.Equal(t, want, was)
				}
				require.NoError(t, admit(ctx, f.Service, w, n1))
			})
		}
	}
}

// If a host is fenced while another call admits it to an export, the host is not admitted when both
// calls have ended.
func TestFenceDuringAnExportExcludesTheHost(t *testing.T) {
	for tr, methods := range map[export.Transport][]string{
		export.TCP:   {"nvmf_create_subsystem", "nvmf_subsystem_add_host", "nvmf_subsystem_add_listener"},
		export.ISCSI: {"iscsi_create_initiator_group", "iscsi_create_target_node"},
	} {
		for _, method := range methods {
			for when, before := range map[string]bool{"before": true, "after": false} {
				t.Run(when+" "+method, func(t *testing.T) {
					f := newFixture(t, tr, "")
					id, n1 := f.bdev(t), drivertest.MultipathHost("n1")
					fence := func(ctx context.Context) {
						_, err := f.Fence(ctx, n1, "n1", false)
						assert.NoError(t, err)
					}
					first := &drivertest.FirstCall{Caller: f.fault, Method: method}
					if before {
						first.Before = func(ctx context.Context, _ any) error { fence(ctx); return nil }
					} else {
						first.After = fence
					}
					require.ErrorIs(t, admit(t.Context(), f.through(first), id, n1), export.ErrFenced)
					assert.Zero(t, f.admitted(t, n1, id))
				})
			}
		}
	}
}

// If a controller dies after it has admitted a host and before it reads the fencing mark, the next
// call removes the host.
func TestFencedHostIsRemovedByTheNextExport(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			f := newFixture(t, tr, "")
			ctx, id, n1 := t.Context(), f.bdev(t), drivertest.Host("n1")
			mark, other := drivertest.Host("n2"), f.bdev(t)
			_, err := f.Fence(ctx, mark, "n2", false)
			require.NoError(t, err)
			require.NoError(t, admit(ctx, f.Service, id, n1))
			require.NoError(t, admit(ctx, f.Service, other, n1))
			// Only the unique part of the NQN determines which host is fenced, so n1 is fenced by
			// the mark of n2.
			fenced := n1
			fenced.NQN = mark.NQN
			if tr == export.TCP {
				require.NoError(t, f.rpc.NVMfSubsystemAddHost(ctx, spdkrpc.NVMfSubsystemAddHostParams{NQN: export.NQN(id), Host: mark.NQN}))
				require.NoError(t, f.rpc.NVMfSubsystemRemoveHost(ctx, spdkrpc.NVMfSubsystemRemoveHostParams{NQN: export.NQN(id), Host: n1.NQN}))
			}
			require.ErrorIs(t, admit(ctx, f.Service, id, fenced), export.ErrFenced)
			assert.Zero(t, f.admitted(t, fenced, id), tr)
			assert.Equal(t, 1, f.admitted(t, n1, other), tr)
		})
	}
}

// Fence reports an export that admits every host, or several initiators in one group, because Fence
// cannot exclude a single host from it.
func TestFenceReportsOpenExports(t *testing.T) {
	n1 := drivertest.Host("n1")
	t.Run("every host", func(t *testing.T) {
		f := newFixture(t, export.TCP, "")
		ctx, id := t.Context(), f.bdev(t)
		drivertest.LegacyExport(t, f.rpc, f.Config, id)
		changes, err := f.Fence(ctx, n1, "n1", false)
		require.NoError(t, err)
		require.Len(t, changes, 2)
		assert.Equal(t, export.NQN(id), changes[1].Export)
		assert.Contains(t, changes[1].Problem, "every host")
	})
	t.Run("other initiators", func(t *testing.T) {
		f := newFixture(t, export.ISCSI, "")
		ctx, id := t.Context(), f.bdev(t)
		require.NoError(t, admit(ctx, f.Service, id, n1))
		group := f.initiatorGroups(t)[0]
		require.NoError(t, f.rpc.ISCSIInitiatorGroupAddInitiators(ctx, spdkrpc.ISCSIInitiatorGroupAddInitiatorsParams{Tag: group.Tag, Initiators: []string{"iqn.2026-11.example:other"}, Netmasks: []string{"192.0.2.0/24"}}))
		changes, err := f.Fence(ctx, n1, "n1", false)
		require.NoError(t, err)
		require.Len(t, changes, 2)
		assert.Contains(t, changes[1].Problem, "other initiators")
	})
}

// If an RPC of Fence fails or loses its reply, the next attempt completes the fencing. No attempt
// reports success before the fencing is complete.
func TestFenceIsCompletedAfterFailures(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		for name, inject := range map[string]func(*drivertest.FaultyCaller, int){
			"lost call":  func(c *drivertest.FaultyCaller, n int) { c.FailCall(n, false, false) },
			"lost reply": func(c *drivertest.FaultyCaller, n int) { c.FailCall(n, true, false) },
			"died":       func(c *drivertest.FaultyCaller, n int) { c.FailCall(n, true, true) },
			"refused":    func(c *drivertest.FaultyCaller, n int) { c.RefuseCall(n) },
		} {
			for n, more := 1, true; more; n++ {
				t.Run(fmt.Sprintf("%s/%s/call %d", tr, name, n), func(t *testing.T) {
					f := newFixture(t, tr, "")
					ctx, n1 := t.Context(), drivertest.MultipathHost("n1")
					v, w := f.bdev(t), f.bdev(t)
					require.NoError(t, admit(ctx, f.Service, v, n1))
					require.NoError(t, admit(ctx, f.Service, w, n1))
					inject(f.fault, n)
					_, err := f.Fence(ctx, n1, "n1", false)
					method := f.fault.FailedMethod()
					f.fault.Reset()
					if err == nil {
						assert.Zero(t, f.admitted(t, n1, v, w), method)
						require.ErrorIs(t, admit(ctx, f.Service, v, n1), export.ErrFenced, method)
					}
					_, err = f.Fence(ctx, n1, "n1", false)
					require.NoError(t, err, method)
					assert.Zero(t, f.admitted(t, n1, v, w), method)
					require.ErrorIs(t, admit(ctx, f.Service, v, n1), export.ErrFenced, method)
					if more = method != ""; !more {
						require.Greater(t, n, 4)
					}
				})
				more = more && !t.Failed()
			}
		}
	}
}

// A tenant of the proxy is not allowed to set the mark. Fence still removes the node from the
// exports, but returns an error.
func TestFenceWithoutAMarkRemovesHostAndFails(t *testing.T) {
	for tr, method := range map[export.Transport]string{export.TCP: "nvmf_create_subsystem", export.ISCSI: "iscsi_create_initiator_group"} {
		t.Run(string(tr), func(t *testing.T) {
			f := newFixture(t, tr, "")
			ctx, id, n1 := t.Context(), f.bdev(t), drivertest.Host("n1")
			require.NoError(t, admit(ctx, f.Service, id, n1))
			s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: method, Before: func(context.Context, any) error { return &spdkrpc.Error{Kind: spdkrpc.Denied} }})
			changes, err := s.Fence(ctx, n1, "n1", false)
			require.ErrorIs(t, err, spdkrpc.Denied)
			require.ErrorContains(t, err, "published to it again")
			require.Len(t, changes, 1)
			assert.NotEmpty(t, changes[0].Export)
			assert.Zero(t, f.admitted(t, n1, id))
		})
	}
}
