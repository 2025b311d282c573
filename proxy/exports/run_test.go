package exports

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// Whichever call fails, and whether or not SPDK executed it, no part of the export remains.
func TestFailedExportIsUndone(t *testing.T) {
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostB}, Listen: []Portal{here, {Transport: "TCP", Addr: "127.0.0.1", Port: "4421"}}}
	for _, f := range []spdktest.Fault{
		{Do: spdktest.Fail}, {Do: spdktest.Close}, {Do: spdktest.Close, Executed: true},
	} {
		for _, method := range []string{"nvmf_create_transport", "nvmf_create_subsystem", "nvmf_subsystem_add_ns", "nvmf_subsystem_add_host", "nvmf_subsystem_add_listener"} {
			f.Method, f.Skip = method, 0
			if strings.HasSuffix(method, "_host") || strings.HasSuffix(method, "_listener") {
				f.Skip = 1 // the second of two calls
			}
			w := newWorld(t, "v26.05")
			p := w.plan(r)
			w.sim.Inject(f)
			err := p.Run(t.Context(), func(Step) {})
			require.ErrorContains(t, err, method)
			if method != "nvmf_create_transport" {
				assert.ErrorContains(t, err, `These calls were made and stay in effect: nvmf_create_transport {"trtype":"TCP"}`)
			}
			assert.Empty(t, w.list(), "%s %+v", method, f)
			w.sim.ClearFaults()
			w.export(r)
		}
	}
}

// A subsystem is deleted only after it has been read back, because another user may have changed
// it.
func TestUnreadableSubsystemIsNotDeleted(t *testing.T) {
	w := newWorld(t, "v26.05")
	p := w.plan(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}})
	w.sim.Inject(spdktest.Fault{Method: "nvmf_subsystem_add_ns", Do: spdktest.Fail})
	w.sim.Inject(spdktest.Fault{Method: "nvmf_get_subsystems", Do: spdktest.Fail})
	err := p.Run(t.Context(), func(Step) {})
	require.ErrorContains(t, err, `These calls, which undo what this command did, failed: nvmf_delete_subsystem {"nqn":"`+p.NQN+`"}`)
	w.sim.ClearFaults()
	assert.Len(t, w.list(), 1)
}

// If the process is killed between two calls, running the same command again completes the export.
func TestInterruptedExportIsCompleted(t *testing.T) {
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostB}, Listen: []Portal{here}}
	for made := range 6 {
		w := newWorld(t, "v26.05")
		p := w.plan(r)
		require.Len(t, p.Steps, 6)
		for _, s := range p.Steps[:made] {
			require.NoError(t, s.do(t.Context()))
		}
		p = w.export(r)
		assert.Equal(t, made == 2, strings.Contains(strings.Join(p.Warnings, "\n"), "as an interrupted export leaves it"), "only an empty subsystem is replaced")
		require.Len(t, w.list(), 1)
		assert.Len(t, w.list()[0].Hosts, 2)
		assert.Equal(t, []string{"tcp 127.0.0.1:4420"}, w.list()[0].Listeners)
		assert.Empty(t, w.plan(r).Steps)
	}

	// A subsystem that another user may have created is kept.
	w := newWorld(t, "v26.05")
	w.call("nvmf_create_subsystem", fmt.Sprintf(`{"nqn":%q,"serial_number":"other"}`, rpcschema.UUIDPrefix+w.v0))
	_, err := PlanExport(t.Context(), w.rpc, r)
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "does not export volume lvs0/v0")
}

// Verify detects changes that other users have made since the plan.
func TestConcurrentChangesAreDetected(t *testing.T) {
	r := Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}}
	for says, change := range map[string]string{
		"does not admit host":      `nvmf_subsystem_remove_host {"nqn":"NQN","host":"` + hostA + `"}`,
		"not admit the same hosts": `nvmf_subsystem_allow_any_host {"nqn":"NQN","allow_any_host":true}`,
		"does not listen at":       `nvmf_subsystem_remove_listener {"nqn":"NQN","listen_address":{"trtype":"TCP","adrfam":"IPv4","traddr":"127.0.0.1","trsvcid":"4420"}}`,
		"does not export volume":   `nvmf_subsystem_remove_ns {"nqn":"NQN","nsid":1}`,
		"cannot read":              `nvmf_delete_subsystem {"nqn":"NQN"}`,
	} {
		w := newWorld(t, "v26.05")
		p := w.export(r)
		method, params, _ := strings.Cut(change, " ")
		w.call(method, strings.ReplaceAll(params, "NQN", p.NQN))
		require.ErrorContains(t, p.Verify(t.Context(), w.rpc), says)
	}
}

// If a change to an export fails, the export remains as it was.
func TestFailedChangeIsUndone(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.export(Request{Volume: "lvs0/v0", Hosts: []string{hostA}, Listen: []Portal{here}})
	before := w.list()
	p := w.plan(Request{Volume: "lvs0/v0", Hosts: []string{hostA, hostB}, Shared: true, Listen: []Portal{{Transport: "TCP", Addr: "127.0.0.1", Port: "4421"}}})
	assert.Equal(t, []string{"nvmf_subsystem_add_host", "nvmf_subsystem_add_listener"}, methods(p))
	w.sim.Inject(spdktest.Fault{Method: "nvmf_subsystem_add_listener", Do: spdktest.Fail})
	ctx, cancel := context.WithCancel(t.Context())
	err := p.Run(ctx, func(s Step) { cancel() }) // an interrupt does not prevent the undo
	require.ErrorContains(t, err, "What this command had done was undone")
	assert.Equal(t, before, w.list())

	p = w.plan(Request{Volume: "lvs0/v0", AnyHost: true, Shared: true})
	w.sim.ClearFaults()
	w.sim.Inject(spdktest.Fault{Method: "nvmf_subsystem_allow_any_host", Do: spdktest.Close, Executed: true})
	require.Error(t, p.Run(t.Context(), func(Step) {}))
	assert.Equal(t, before, w.list())

	// Another user changes the subsystem before a call fails.
	p = w.plan(Request{Volume: "lvs0/v1", Hosts: []string{hostA}})
	w.sim.ClearFaults()
	w.sim.Inject(spdktest.Fault{Method: "nvmf_subsystem_add_listener", Do: spdktest.Fail})
	err = p.Run(t.Context(), func(s Step) {
		if s.Method == "nvmf_subsystem_add_host" {
			w.call("nvmf_subsystem_add_host", fmt.Sprintf(`{"nqn":%q,"host":%q}`, p.NQN, hostB))
		}
	})
	require.ErrorContains(t, err, "another user has changed")
	assert.Len(t, w.list(), 2)
}

// The words of displayed commands are quoted, because other users may have chosen them.
func TestCommandArgumentsAreQuoted(t *testing.T) {
	for word, want := range map[string]string{
		"nqn.2024-01.com.example:A-z_0": "nqn.2024-01.com.example:A-z_0",
		"$(id)":                         `'$(id)'`,
		"a b":                           `'a b'`,
		"fe80::1%eth0":                  `'fe80::1%eth0'`,
		"it's":                          `'it'\''s'`,
		"é":                             `'é'`,
	} {
		assert.Equal(t, want, quote(word))
	}
}
