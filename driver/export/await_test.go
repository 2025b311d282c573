package export_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/drivertest"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// awaited counts the calls of spdkgate_config_await, and responds as the proxy does when the whole
// configuration is saved.
type awaited struct {
	spdkrpc.Caller
	calls atomic.Int32
}

func (a *awaited) Call(ctx context.Context, method string, params, result any) error {
	if method == "spdkgate_config_await" {
		a.calls.Add(1)
		return nil
	}
	return a.Caller.Call(ctx, method, params, result)
}

// lostReplies drops the response to each call of a method.
type lostReplies struct {
	spdkrpc.Caller
	method string
}

func (l lostReplies) Call(ctx context.Context, method string, params, result any) error {
	if method != l.method {
		return l.Caller.Call(ctx, method, params, result)
	}
	_ = l.Caller.Call(ctx, method, params, nil)
	return &spdkrpc.Error{Method: method, Kind: spdkrpc.OutcomeUnknown, Message: "the reply was lost"}
}

// TestChangesByOtherCallsAreAwaited verifies that a call waits until the configuration is saved if
// another call has already done one of its steps. Steps that the target has confirmed to the call
// itself are already saved.
func TestChangesByOtherCallsAreAwaited(t *testing.T) {
	n1, n2 := drivertest.MultipathHost("n1"), drivertest.MultipathHost("n2")
	type call = func(ctx context.Context, s *export.Service, id string) error
	admitN1 := func(ctx context.Context, s *export.Service, id string) error { return admit(ctx, s, id, n1) }
	withdrawN1 := func(ctx context.Context, s *export.Service, id string) error { return s.Withdraw(ctx, id, &n1) }
	shareWith := func(h export.Host) call {
		return func(ctx context.Context, s *export.Service, id string) error {
			_, err := s.Share(ctx, id, h, mayExport)
			return err
		}
	}
	for name, c := range map[string]struct {
		before []call
		do     call
		lost   string // the method whose response is lost
		awaits bool
	}{
		"admit":                        {do: admitN1},
		"admit again":                  {before: []call{admitN1}, do: admitN1, awaits: true},
		"create, response lost":        {do: admitN1, lost: "nvmf_create_subsystem", awaits: true},
		"add namespace, response lost": {do: admitN1, lost: "nvmf_subsystem_add_ns", awaits: true},
		"add host, response lost":      {do: admitN1, lost: "nvmf_subsystem_add_host", awaits: true},
		"listen, response lost":        {do: admitN1, lost: "nvmf_subsystem_add_listener", awaits: true},
		"share":                        {do: shareWith(n1)},
		"share with another":           {before: []call{shareWith(n2)}, do: shareWith(n1), awaits: true},
		"withdraw":                     {before: []call{admitN1}, do: withdrawN1},
		"withdraw again":               {do: withdrawN1, awaits: true},
		"withdraw, response lost":      {before: []call{admitN1}, do: withdrawN1, lost: "nvmf_delete_subsystem", awaits: true},
		"withdraw one of two hosts":    {before: []call{shareWith(n1), shareWith(n2)}, do: withdrawN1, awaits: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, export.TCP, "")
			id := f.bdev(t)
			for _, do := range c.before {
				require.NoError(t, do(t.Context(), f.Service, id))
			}
			saved := &awaited{Caller: f.fault}
			require.NoError(t, c.do(t.Context(), f.through(lostReplies{saved, c.lost}), id))
			assert.Equal(t, c.awaits, saved.calls.Load() > 0)
		})
	}
}

// heldQuery delays the response to the first query for a host's fence mark until the channel answer
// is closed. The target executes the query immediately.
type heldQuery struct {
	spdkrpc.Caller
	once     sync.Once
	executed chan struct{}
	answer   chan struct{}
	hosts    atomic.Int32 // number of admitted hosts
}

func (q *heldQuery) Call(ctx context.Context, method string, params, result any) error {
	if method == "nvmf_subsystem_add_host" {
		q.hosts.Add(1)
	}
	err := q.Caller.Call(ctx, method, params, result)
	if kind := spdkrpc.KindOf(err); method == "nvmf_get_subsystems" && kind == spdkrpc.NoSuchDevice {
		q.once.Do(func() {
			close(q.executed)
			<-q.answer
		})
	}
	return err
}

// TestEarlierFenceQueryIsIgnored verifies that an admission does not use the result of a query for
// the host's mark that began before the admission. The host may have been fenced since then.
func TestEarlierFenceQueryIsIgnored(t *testing.T) {
	f := newFixture(t, export.TCP, "")
	first, second, n1 := f.bdev(t), f.bdev(t), drivertest.MultipathHost("n1")
	held := &heldQuery{Caller: f.fault, executed: make(chan struct{}), answer: make(chan struct{})}
	s := f.through(held)
	var calls sync.WaitGroup
	var early, late error
	calls.Go(func() { _, early = s.Fence(t.Context(), n1, "n1", true) }) // first queries the mark
	<-held.executed
	_, err := f.otherController(f.fault).Fence(t.Context(), n1, "n1", false)
	require.NoError(t, err)
	began := make(chan struct{})
	calls.Go(func() {
		_, late = s.Admit(t.Context(), second, n1, func(context.Context) error { close(began); return nil })
	})
	<-began
	time.Sleep(20 * time.Millisecond) // time for a faulty call to join the delayed query
	close(held.answer)
	calls.Wait()
	require.NoError(t, early)
	require.ErrorIs(t, late, export.ErrFenced)
	assert.Zero(t, held.hosts.Load(), "no host was admitted even for a moment")
	require.ErrorIs(t, admit(t.Context(), s, first, n1), export.ErrFenced)
}
