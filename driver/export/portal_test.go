package export_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// claimTag is the tag of the initiator group that claims the creation of the portal group.
const claimTag = 999

// Many concurrent first exports on a target create only one transport and one portal group.
func TestConcurrentFirstExportsCreateOnePortalGroup(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			f := newFixture(t, tr, "")
			var wg sync.WaitGroup
			for range 16 {
				id := f.bdev(t)
				wg.Go(func() { assert.NoError(t, admit(t.Context(), f.Service, id, drivertest.Host("n1"))) })
			}
			wg.Wait()
			if tr == export.ISCSI {
				assert.Len(t, f.portalGroups(t), 1)
			}
		})
	}
}

// Two controllers create only one portal group, even if both of them have found none. SPDK v26.05
// crashes if a portal group is created twice.
func TestTwoControllersCreateOnePortalGroup(t *testing.T) {
	for _, during := range []string{"iscsi_create_initiator_group", "iscsi_create_portal_group"} {
		t.Run(during, func(t *testing.T) {
			f := newFixture(t, export.ISCSI, "")
			v, w := f.bdev(t), f.bdev(t)
			created := 0
			count := func(context.Context, any) error { created++; return nil }
			second := f.otherController(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_portal_group", Before: count})
			// The second controller exports its volume immediately after the first controller has
			// found no portal group.
			interrupted := &drivertest.FirstCall{Caller: f.fault, Method: during, Before: func(ctx context.Context, _ any) error {
				err := admit(ctx, second, w, drivertest.Host("n2"))
				if during == "iscsi_create_portal_group" {
					assert.ErrorIs(t, err, export.ErrBusy, "the first controller has the claim")
					return nil
				}
				return err
			}}
			first := f.otherController(&drivertest.FirstCall{Caller: interrupted, Method: "iscsi_create_portal_group", Before: count})
			require.NoError(t, admit(t.Context(), first, v, drivertest.Host("n1")))
			require.NoError(t, admit(t.Context(), second, w, drivertest.Host("n2")))
			assert.Equal(t, 1, created)
			assert.Len(t, f.portalGroups(t), 1)
		})
	}
}

// While the target may still be executing a call that creates a portal group, no second such call
// is made.
func TestUnknownOutcomeCreatesNoSecondPortalGroup(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	id, n1 := f.bdev(t), drivertest.Host("n1")
	var late any
	s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_portal_group", Before: func(_ context.Context, params any) error {
		late = params
		return &spdkrpc.Error{Method: "iscsi_create_portal_group", Kind: spdkrpc.OutcomeUnknown}
	}})
	require.ErrorIs(t, admit(t.Context(), s, id, n1), spdkrpc.OutcomeUnknown)
	for range 2 {
		err := admit(t.Context(), s, id, n1)
		require.ErrorIs(t, err, export.ErrBusy)
		require.ErrorContains(t, err, "initiator group 999")
	}
	require.NoError(t, f.fault.Call(t.Context(), "iscsi_create_portal_group", late, nil))
	require.NoError(t, admit(t.Context(), s, id, n1))
	require.NoError(t, s.Withdraw(t.Context(), id, nil))
	assert.Empty(t, f.initiatorGroups(t), "the claim was removed with the node's group")
}

// After some time, a controller that needs the portal group removes a dead controller's claim,
// regardless of which call of the removal fails and how many controllers attempt the removal.
func TestAbandonedClaimIsRemoved(t *testing.T) {
	f := newFixture(t, export.ISCSI, "")
	config := f.Config
	config.ClaimPatience = time.Nanosecond
	id, n1 := f.bdev(t), drivertest.Host("n1")
	dies := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_portal_group", Before: func(context.Context, any) error {
		return &spdkrpc.Error{Method: "iscsi_create_portal_group", Kind: spdkrpc.OutcomeUnknown}
	}})
	require.ErrorIs(t, admit(t.Context(), dies, id, n1), spdkrpc.OutcomeUnknown)

	patient := f.otherController(f.fault)
	for range 3 {
		require.ErrorIs(t, admit(t.Context(), patient, id, n1), export.ErrBusy)
	}
	impatient := export.NewTarget(config).Service(spdkrpc.NewClient(f.fault))
	require.ErrorIs(t, admit(t.Context(), impatient, id, n1), export.ErrBusy, "it has just seen the claim for the first time")
	require.NoError(t, admit(t.Context(), impatient, id, n1))
	require.Len(t, f.portalGroups(t), 1)
	assert.Len(t, f.initiatorGroups(t), 1, "only the node's group")
}

// If any call fails while an abandoned claim is being replaced, the error contains that failure,
// and the next export succeeds.
func TestFailedClaimReplacementIsReported(t *testing.T) {
	for n, done := 1, false; !done; n++ {
		t.Run(fmt.Sprint("call ", n), func(t *testing.T) {
			f := newFixture(t, export.ISCSI, "")
			config := f.Config
			config.ClaimPatience = time.Nanosecond
			id, n1 := f.bdev(t), drivertest.Host("n1")
			require.NoError(t, f.fault.Call(t.Context(), "iscsi_create_initiator_group", map[string]any{"tag": claimTag, "initiators": []string{"iqn.2026-11.io.spdkgate:portal-group:x"}, "netmasks": []string{"ANY"}}, nil))
			s := export.NewTarget(config).Service(spdkrpc.NewClient(f.fault))
			require.ErrorIs(t, admit(t.Context(), s, id, n1), export.ErrBusy, "it has just seen the claim for the first time")
			f.fault.RefuseCall(n)
			err := admit(t.Context(), s, id, n1)
			method := f.fault.FailedMethod()
			if done = method == ""; done {
				require.NoError(t, err)
				return
			}
			if method != "iscsi_create_initiator_group" || err != nil { // the first such call fails because the claim exists
				require.ErrorContains(t, err, "injected failure", method)
			}
			f.fault.Reset()
			if method != "iscsi_delete_initiator_group" { // an administrator must delete the group that this failure leaves behind
				require.NoError(t, admit(t.Context(), s, id, n1), method)
				assert.Len(t, f.portalGroups(t), 1, method)
				assert.Len(t, f.initiatorGroups(t), 1, "only the node's group")
			}
		})
	}
}

// Two controllers that remove an abandoned claim concurrently create one portal group.
func TestTwoControllersRemoveAnAbandonedClaim(t *testing.T) {
	for _, during := range []string{"iscsi_create_initiator_group", "iscsi_delete_initiator_group", "iscsi_create_portal_group"} {
		t.Run(during, func(t *testing.T) {
			f := newFixture(t, export.ISCSI, "")
			config := f.Config
			config.ClaimPatience = time.Nanosecond
			v, w := f.bdev(t), f.bdev(t)
			require.NoError(t, f.fault.Call(t.Context(), "iscsi_create_initiator_group", map[string]any{"tag": claimTag, "initiators": []string{"iqn.2026-11.io.spdkgate:portal-group:x"}, "netmasks": []string{"ANY"}}, nil))
			created := 0
			count := func(context.Context, any) error { created++; return nil }
			second := export.NewTarget(config).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: f.fault, Method: "iscsi_create_portal_group", Before: count}))
			require.ErrorIs(t, admit(t.Context(), second, w, drivertest.Host("n2")), export.ErrBusy)
			armed := false
			interrupted := &drivertest.FirstCall{Caller: f.fault, Method: during, Before: func(ctx context.Context, _ any) error {
				if err := admit(ctx, second, w, drivertest.Host("n2")); err != nil {
					assert.ErrorIs(t, err, export.ErrBusy)
				}
				armed = true
				return nil
			}}
			first := export.NewTarget(config).Service(spdkrpc.NewClient(&drivertest.FirstCall{Caller: interrupted, Method: "iscsi_create_portal_group", Before: count}))
			for err := admit(t.Context(), first, v, drivertest.Host("n1")); err != nil; err = admit(t.Context(), first, v, drivertest.Host("n1")) {
				require.ErrorIs(t, err, export.ErrBusy)
			}
			require.True(t, armed)
			for err := admit(t.Context(), second, w, drivertest.Host("n2")); err != nil; err = admit(t.Context(), second, w, drivertest.Host("n2")) {
				require.ErrorIs(t, err, export.ErrBusy)
			}
			assert.Equal(t, 1, created)
			assert.Len(t, f.portalGroups(t), 1)
			assert.Len(t, f.initiatorGroups(t), 2, "one for each node")
		})
	}
}

// If any call of a target's first export fails, the target has one portal group and no claim after
// the next export.
func TestFailedFirstExportLeavesNoClaim(t *testing.T) {
	failures := map[string]func(f *drivertest.FaultyCaller, n int){
		"unreachable": func(f *drivertest.FaultyCaller, n int) { f.FailCall(n, false, false) },
		"reply lost":  func(f *drivertest.FaultyCaller, n int) { f.FailCall(n, true, false) },
		"refused":     func(f *drivertest.FaultyCaller, n int) { f.RefuseCall(n) },
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		for n := 1; ; n++ {
			failed := false
			for name, inject := range failures {
				t.Run(fmt.Sprintf("%s/call %d %s", address, n, name), func(t *testing.T) {
					failed = firstExportFails(t, address, name, func(f *drivertest.FaultyCaller) { inject(f, n) }) || failed
				})
			}
			if !failed {
				require.Greater(t, n, 5)
				break
			}
		}
	}
}

// firstExportFails exports a volume first with an injected failure and then without. It reports
// whether the failure occurred.
func firstExportFails(t *testing.T, address, name string, inject func(*drivertest.FaultyCaller)) bool {
	f := newFixture(t, export.ISCSI, "")
	config := f.Config
	config.Listen = []export.Portal{{Addr: address, Port: "3260"}}
	s := export.NewTarget(config).Service(spdkrpc.NewClient(f.fault))
	id, n1 := f.bdev(t), drivertest.Host("n1")
	inject(f.fault)
	err := admit(t.Context(), s, id, n1)
	method := f.fault.FailedMethod()
	if errors.Is(err, export.ErrBusy) { // without a reply to its creation, the owner of the claim is unknown
		require.Equal(t, "reply lost: iscsi_create_initiator_group", name+": "+method)
		return true
	}
	if m, ok := rpcschema.Default().Method(method); method == "" || name == "reply lost" && ok && m.Mutates {
		require.NoError(t, err, method)
	} else {
		require.Error(t, err, method)
	}
	f.fault.Reset()
	require.NoError(t, admit(t.Context(), s, id, n1), method)
	groups := f.portalGroups(t)
	require.Len(t, groups, 1, method)
	assert.EqualValues(t, 1, groups[0].Tag, method)
	require.Len(t, groups[0].Portals, 1)
	assert.Equal(t, address, strings.Trim(groups[0].Portals[0].Host, "[]"), method)
	assert.False(t, slices.ContainsFunc(f.initiatorGroups(t), func(g spdkrpc.ISCSIInitiatorGroup) bool { return g.Tag == claimTag }), method)
	return method != ""
}

// The transport does not exist when the listener is added, but exists when the driver checks for
// it.
func TestTransportCreatedByAnotherExportIsUsed(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	s := f.through(&drivertest.FirstCall{Caller: f.fault, Method: "nvmf_subsystem_add_listener", After: func(ctx context.Context) {
		err := f.rpc.NVMfCreateTransport(ctx, spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"})
		if !realtarget.Given() { // a real target keeps the transport of an earlier test
			assert.NoError(t, err)
		}
	}})
	require.NoError(t, admit(t.Context(), s, f.bdev(t), drivertest.Host("n1")))
}
