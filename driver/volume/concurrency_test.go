package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// methods records which methods are called.
type methods struct {
	spdkrpc.Caller
	mu   sync.Mutex
	seen []string
}

func (m *methods) Call(ctx context.Context, method string, params, result any) error {
	m.mu.Lock()
	if !slices.Contains(m.seen, method) {
		m.seen = append(m.seen, method)
	}
	m.mu.Unlock()
	return m.Caller.Call(ctx, method, params, result)
}

// gate holds calls of a method back until as many are in flight as there are callers.
type gate struct {
	spdkrpc.Caller
	method  string
	mu      sync.Mutex
	missing int
	open    chan struct{}
}

func (g *gate) Call(ctx context.Context, method string, params, result any) error {
	if method == g.method {
		g.mu.Lock()
		if g.missing--; g.missing == 0 {
			close(g.open)
		}
		g.mu.Unlock()
		select {
		case <-g.open:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g.Caller.Call(ctx, method, params, result)
}

// Every call that exporting makes can be in flight for all volumes at once: none is made under a lock.
func TestExportsRunSideBySide(t *testing.T) {
	const volumes = 32
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			of := func(c spdkrpc.Caller) *Service { return b.Target.Service(spdkrpc.NewClient(c)) }
			first := b.create(t, "first", 4)
			_, err := b.Export(t.Context(), first.UUID, host("n1"))
			require.NoError(t, err)
			var ids []string
			for i := range volumes {
				ids = append(ids, b.create(t, fmt.Sprintf("pvc-%d", i), 4).UUID)
			}
			all := func(method string, op func(s *Service, id string) error) {
				g := &gate{Caller: b.fault, method: method, missing: volumes, open: make(chan struct{})}
				s := of(g)
				var wg sync.WaitGroup
				for _, id := range ids {
					wg.Go(func() { assert.NoError(t, op(s, id), method) })
				}
				wg.Wait()
			}
			publish := func(s *Service, id string) error { return errorOf(s.Export(t.Context(), id, host("n1"))) }
			unpublish := func(s *Service, id string) error { return s.Unexport(t.Context(), id, new(host("n1"))) }
			there, gone := &methods{Caller: b.fault}, &methods{Caller: b.fault}
			require.NoError(t, publish(of(there), ids[0]))
			require.NoError(t, unpublish(of(gone), ids[0]))
			for _, method := range there.seen {
				all(method, publish)
				all("", unpublish)
			}
			for _, method := range gone.seen {
				all("", publish)
				all(method, unpublish)
			}
			for _, id := range ids {
				require.NoError(t, b.Delete(t.Context(), id))
			}
			require.NoError(t, b.Unexport(t.Context(), first.UUID, nil))
			cleanUp(t, b, string(tr))
		})
	}
}

// A target that has neither transport nor portal group gets one of each, however many ask for it.
func TestFirstExportsAtOnce(t *testing.T) {
	for _, tr := range []export.Transport{export.TCP, export.ISCSI} {
		t.Run(string(tr), func(t *testing.T) {
			b := newTestService(t, tr)
			if tr == export.ISCSI {
				b.removePortals(t)
				t.Cleanup(func() { b.removePortals(t) })
			}
			var wg sync.WaitGroup
			for i := range 16 {
				v := b.create(t, fmt.Sprintf("pvc-%d", i), 4)
				wg.Go(func() { assert.NoError(t, errorOf(b.Export(t.Context(), v.UUID, host("n1")))) })
			}
			wg.Wait()
			if tr == export.ISCSI {
				groups, err := b.rpc.ISCSIGetPortalGroups(t.Context())
				require.NoError(t, err)
				assert.Len(t, groups, 1)
			}
			cleanUp(t, b, string(tr))
		})
	}
}

func (b *testService) removePortals(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	groups, err := b.rpc.ISCSIGetPortalGroups(ctx)
	require.NoError(t, err)
	for _, g := range groups {
		require.NoError(t, b.rpc.ISCSIDeletePortalGroup(ctx, spdkrpc.ISCSIDeletePortalGroupParams{Tag: g.Tag}))
	}
	initiators, err := b.rpc.ISCSIGetInitiatorGroups(ctx)
	require.NoError(t, err)
	for _, g := range initiators {
		if g.Tag == 1 {
			require.NoError(t, b.rpc.ISCSIDeleteInitiatorGroup(ctx, spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: g.Tag}))
		}
	}
}

// Creating a portal group twice ends v26.05. Two controllers that both found none still create one.
func TestTwoControllersCreateOnePortalGroup(t *testing.T) {
	b := newTestService(t, export.ISCSI)
	b.removePortals(t)
	t.Cleanup(func() { b.removePortals(t) })
	v, w := b.create(t, "pvc-1", 4), b.create(t, "pvc-2", 4)
	created := 0
	count := func(context.Context, any) error { created++; return nil }
	other := NewTarget(b.Config).Service(spdkrpc.NewClient(&before{Caller: b.fault, method: "iscsi_create_portal_group", do: count}))
	// The rival comes when this controller has found no portal group, and once more while it creates one.
	rival := &before{Caller: b.fault, method: "iscsi_create_initiator_group", do: func(ctx context.Context, _ any) error {
		_, err := other.Export(ctx, w.UUID, host("n2"))
		return err
	}}
	s := NewTarget(b.Config).Service(spdkrpc.NewClient(&before{Caller: rival, method: "iscsi_create_portal_group", do: count}))
	_, err := s.Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	assert.Equal(t, 1, created)

	require.NoError(t, b.Unexport(t.Context(), v.UUID, nil))
	require.NoError(t, b.Unexport(t.Context(), w.UUID, nil))
	b.removePortals(t)
	during := &before{Caller: b.fault, method: "iscsi_create_portal_group", do: func(ctx context.Context, _ any) error {
		_, err := other.Export(ctx, w.UUID, host("n2"))
		assert.ErrorIs(t, err, ErrBusy)
		return nil
	}}
	_, err = NewTarget(b.Config).Service(spdkrpc.NewClient(during)).Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	_, err = other.Export(t.Context(), w.UUID, host("n2"))
	require.NoError(t, err)
	groups, err := b.rpc.ISCSIGetPortalGroups(t.Context())
	require.NoError(t, err)
	assert.Len(t, groups, 1)
	require.NoError(t, b.Unexport(t.Context(), w.UUID, nil))
	cleanUp(t, b, "")
}

// While a call that creates the portal group may yet be executed, nobody makes another one.
func TestPortalGroupOfUnknownOutcome(t *testing.T) {
	b := newTestService(t, export.ISCSI)
	b.removePortals(t)
	t.Cleanup(func() { b.removePortals(t) })
	v := b.create(t, "pvc-1", 4)
	var late any
	lost := &before{Caller: b.fault, method: "iscsi_create_portal_group", do: func(_ context.Context, params any) error {
		late = params
		return &spdkrpc.Error{Method: "iscsi_create_portal_group", Kind: spdkrpc.OutcomeUnknown}
	}}
	s := b.Target.Service(spdkrpc.NewClient(lost))
	_, err := s.Export(t.Context(), v.UUID, host("n1"))
	require.ErrorIs(t, err, spdkrpc.OutcomeUnknown)
	for range 2 {
		_, err = s.Export(t.Context(), v.UUID, host("n1"))
		require.ErrorIs(t, err, ErrBusy)
		require.ErrorContains(t, err, "delete initiator group 999")
	}
	require.NoError(t, b.fault.Call(t.Context(), "iscsi_create_portal_group", late, nil))
	_, err = s.Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	require.NoError(t, s.Unexport(t.Context(), v.UUID, nil))
	assert.Zero(t, b.state(t).Groups, "the claim went with the node's group")
	cleanUp(t, b, "")
}

// Whatever call of the first export on a target goes wrong, the next export ends with one portal group, and without a claim.
func TestFirstExportOnATargetIsStruck(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1"} {
		for at := 1; ; at++ {
			struck := false
			for name, arm := range map[string]func(f *fault){
				"unreachable": func(f *fault) { f.arm(at, false, false) }, "reply lost": func(f *fault) { f.arm(at, true, false) }, "refused": func(f *fault) { f.refuse(at) },
			} {
				b := newTestService(t, export.ISCSI)
				b.removePortals(t)
				config := b.Config
				config.ListenAddr = address
				s := NewTarget(config).Service(spdkrpc.NewClient(b.fault))
				v := b.create(t, "pvc-1", 4)
				arm(b.fault)
				_, err := s.Export(t.Context(), v.UUID, host("n1"))
				where := name + ": " + b.fault.struck
				struck = struck || b.fault.struck != ""
				if errors.Is(err, ErrBusy) { // nobody can tell whose claim it is whose creation was not answered
					require.Equal(t, "reply lost: iscsi_create_initiator_group", where)
					require.NoError(t, b.rpc.ISCSIDeleteInitiatorGroup(t.Context(), spdkrpc.ISCSIDeleteInitiatorGroupParams{Tag: claimTag}))
					require.NoError(t, s.Delete(t.Context(), v.UUID))
					continue
				}
				if name == "reply lost" && changes(b.fault.struck) || b.fault.struck == "" {
					require.NoError(t, err, where)
				} else {
					require.Error(t, err, where)
				}
				b.fault.arm(0, false, false)
				_, err = s.Export(t.Context(), v.UUID, host("n1"))
				require.NoError(t, err, where)
				groups, err := b.rpc.ISCSIGetPortalGroups(t.Context())
				require.NoError(t, err)
				require.Len(t, groups, 1, where)
				assert.EqualValues(t, 1, groups[0].Tag, where)
				require.Len(t, groups[0].Portals, 1)
				assert.Equal(t, address, strings.Trim(groups[0].Portals[0].Host, "[]"), where)
				owners, err := b.rpc.ISCSIGetInitiatorGroups(t.Context())
				require.NoError(t, err)
				assert.False(t, slices.ContainsFunc(owners, func(g spdkrpc.ISCSIInitiatorGroup) bool { return g.Tag == claimTag }), where)
				require.NoError(t, s.Unexport(t.Context(), v.UUID, nil))
				require.NoError(t, s.Delete(t.Context(), v.UUID))
				b.removePortals(t)
			}
			if !struck {
				require.Greater(t, at, 5)
				break
			}
		}
	}
}

// A meddler does something right after the first call of a method.
type meddler struct {
	spdkrpc.Caller
	method string
	do     func()
	once   sync.Once
}

func (m *meddler) Call(ctx context.Context, method string, params, result any) error {
	err := m.Caller.Call(ctx, method, params, result)
	if method == m.method {
		m.once.Do(m.do)
	}
	return err
}

// The transport was missing when the listener was added, and is there when it is looked for.
func TestTransportThatAnotherExportMakes(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	m := &meddler{Caller: b.fault, method: "nvmf_subsystem_add_listener", do: func() {
		assert.NoError(t, b.rpc.NVMfCreateTransport(t.Context(), spdkrpc.NVMfCreateTransportParams{Trtype: "TCP"}))
	}}
	_, err := b.Target.Service(spdkrpc.NewClient(m)).Export(t.Context(), v.UUID, host("n1"))
	require.NoError(t, err)
	cleanUp(t, b, "TCP")
}
