package exports

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A hook is a Caller that passes the method of each successful call to a function.
type hook struct {
	spdkrpc.Caller
	after func(method string)
}

func (h hook) Call(ctx context.Context, method string, params, result any) error {
	err := h.Caller.Call(ctx, method, params, result)
	if err == nil {
		h.after(method)
	}
	return err
}

// withoutHosts exports lvs0/v0, and then removes the host with a separate call, which leaves a
// subsystem without hosts.
func (w *world) withoutHosts() {
	w.t.Helper()
	p := w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostC}, Listen: []Portal{here}})
	w.call("nvmf_subsystem_remove_host", fmt.Sprintf(`{"nqn":%q,"host":%q}`, p.NQN, hostC))
}

// competing plans an export for host A. After that export has called method, competing runs the
// same request for host B. It returns the errors of both requests.
func (w *world) competing(method string, change func(*Request)) (errA, errB error) {
	w.t.Helper()
	request := func(host string) Request {
		r := Request{Volume: "lvs0/v0", Hosts: []string{host}, Listen: []Portal{here}}
		change(&r)
		return r
	}
	var b *Plan
	runs := 0
	client := spdkrpc.NewClient(hook{w.socket, func(called string) {
		if called != method || b == nil {
			return
		}
		run := b
		b = nil
		runs++
		errB = run.Run(w.t.Context(), func(Step) {})
	}})
	a, err := PlanExport(w.t.Context(), client, request(hostA))
	require.NoError(w.t, err)
	b = w.plan(request(hostB))
	errA = a.Run(w.t.Context(), func(Step) {})
	require.Equal(w.t, 1, runs)
	return errA, errB
}

func (w *world) hosts() (list []string) {
	w.t.Helper()
	exports := w.list()
	require.Len(w.t, exports, 1)
	for _, h := range exports[0].Hosts {
		list = append(list, h.NQN)
	}
	return list
}

const (
	conflictWithA = "another command concurrently admitted host " + hostA + " to volume lvs0/v0"
	conflictWithB = "another command concurrently admitted host " + hostB + " to volume lvs0/v0"
)

// If two commands for different hosts make their plans before either has admitted its host, at most
// one host remains admitted.
func TestConcurrentExportsNeverAdmitTwoHosts(t *testing.T) {
	unshared := func(*Request) {}
	t.Run("the other command runs between admission and check", func(t *testing.T) {
		w := newWorld(t, "v26.05")
		w.withoutHosts()
		errA, errB := w.competing("nvmf_subsystem_add_host", unshared)
		require.NoError(t, errA, "the other command has withdrawn its host")
		require.ErrorContains(t, errB, conflictWithA)
		require.ErrorContains(t, errB, "What this command had done was undone")
		assert.Equal(t, []string{hostA}, w.hosts())
	})
	t.Run("the other command runs after the check", func(t *testing.T) {
		w := newWorld(t, "v26.05")
		w.withoutHosts()
		p := w.plan(Request{Volume: "lvs0/v0", Hosts: []string{hostB}, Listen: []Portal{here}})
		w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}})
		require.ErrorContains(t, p.Run(t.Context(), func(Step) {}), conflictWithA)
		assert.Equal(t, []string{hostA}, w.hosts())
	})
	t.Run("each command sees the other's host", func(t *testing.T) {
		w := newWorld(t, "v26.05")
		w.withoutHosts()
		var added, read sync.WaitGroup
		added.Add(2)
		read.Add(2)
		plan := func(host string) *Plan {
			adds := false
			p, err := PlanExport(t.Context(), spdkrpc.NewClient(hook{w.socket, func(method string) {
				switch {
				case method == "nvmf_subsystem_add_host":
					adds = true
					added.Done()
					added.Wait()
				case method == "nvmf_get_subsystems" && adds:
					read.Done()
					read.Wait()
				}
			}}), Request{Volume: "lvs0/v0", Hosts: []string{host}, Listen: []Portal{here}})
			require.NoError(t, err)
			return p
		}
		a, b := plan(hostA), plan(hostB)
		errA := make(chan error)
		go func() { errA <- a.Run(t.Context(), func(Step) {}) }()
		require.ErrorContains(t, b.Run(t.Context(), func(Step) {}), conflictWithA)
		require.ErrorContains(t, <-errA, conflictWithB)
		assert.Empty(t, w.hosts(), "either command can be repeated")
		w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostB}, Listen: []Portal{here}})
	})
	t.Run("both hosts are admitted with --shared", func(t *testing.T) {
		w := newWorld(t, "v26.05")
		w.withoutHosts()
		errA, errB := w.competing("nvmf_subsystem_add_host", func(r *Request) { r.Shared = true })
		require.NoError(t, errA)
		require.NoError(t, errB)
		assert.ElementsMatch(t, []string{hostA, hostB}, w.hosts())
	})
}

// If a command creates an export, but another command is the first to admit its host, the creating
// command removes its own host and keeps the subsystem.
func TestLaterOfTwoConcurrentExportsRemovesItsHost(t *testing.T) {
	w := newWorld(t, "v26.05")
	client := spdkrpc.NewClient(hook{w.socket, func(method string) {
		if method == "nvmf_subsystem_add_ns" {
			w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostB}, Listen: []Portal{here}})
		}
	}})
	p, err := PlanExport(t.Context(), client, Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}})
	require.NoError(t, err)
	err = p.Run(t.Context(), func(Step) {})
	require.ErrorContains(t, err, conflictWithB)
	require.ErrorContains(t, err, "another user has changed "+p.NQN)
	assert.Equal(t, []string{hostB}, w.hosts())
	assert.Equal(t, []string{"tcp 127.0.0.1:4420"}, w.list()[0].Listeners)
}

// The command also removes its host if the subsystem now admits any host, or if the hosts cannot be
// read back.
func TestExportWithUncheckedHostsIsUndone(t *testing.T) {
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostB}, Listen: []Portal{here}}
	w := newWorld(t, "v26.05")
	w.withoutHosts()
	p := w.plan(r)
	w.call("nvmf_subsystem_allow_any_host", fmt.Sprintf(`{"nqn":%q,"allow_any_host":true}`, p.NQN))
	require.ErrorContains(t, p.Run(t.Context(), func(Step) {}), "another command concurrently admitted every host to volume lvs0/v0")
	assert.Empty(t, w.hosts())
	w.call("nvmf_subsystem_allow_any_host", fmt.Sprintf(`{"nqn":%q,"allow_any_host":false}`, p.NQN))

	p = w.plan(r)
	w.sim.Inject(spdktest.Fault{Method: "nvmf_get_subsystems", Do: spdktest.Fail})
	require.ErrorContains(t, p.Run(t.Context(), func(Step) {}), "cannot check that no other host is admitted to volume lvs0/v0")
	w.sim.ClearFaults()
	assert.Empty(t, w.hosts())
	w.export(r)
	assert.ElementsMatch(t, []string{hostA, hostB}, w.hosts())
}
