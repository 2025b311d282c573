package schema

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/drift"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/sample"
	"github.com/spdkgate/spdkgate/rpcschema/sample/broken"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest/realtarget"
)

// A bench is a real target under test.
type bench struct {
	*testing.T
	caller  *spdkrpc.Socket
	release rpcschema.Release
	doc     *rpcschema.Document
	listed  []string // methods that the target lists, including aliases
	current []string // methods that are allowed in its current state
	tally   *tally
}

// A tally counts broken calls, each as "method what pointer".
type tally struct {
	seen    map[string]bool
	refused []refusal
	proven  map[string]bool // definitely refused because of the mistake
	unused  map[string]bool // exceptions that were not needed
}

// answerWithin limits a call. A polling target responds within milliseconds, or within seconds on a
// busy host; later responses are not expected.
const answerWithin = 30 * time.Second

type refusal struct {
	id  string
	err error
}

func (b *bench) call(method string, params map[string]any) (any, error) {
	ctx, cancel := context.WithTimeout(b.Context(), answerWithin)
	defer cancel()
	var result json.RawMessage
	var sent any
	if m, ok := b.doc.Method(method); ok {
		sent = bare(m, params)
	} else if len(params) > 0 {
		sent = params
	}
	if err := b.caller.Call(ctx, method, sent, &result); err != nil {
		return nil, err
	}
	// The check is not strict, because some of SPDK's results repeat a member.
	dec := json.NewDecoder(bytes.NewReader(result))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// alive ends the test if the target has exited.
func (b *bench) alive(after string) {
	b.Helper()
	_, err := b.call("spdk_get_version", nil)
	require.NoError(b, err, "the target did not survive %s", after)
}

// methods returns the methods in the schema that the target has and permits in its current state.
func (b *bench) methods() (list []*rpcschema.Method) {
	for _, m := range b.doc.OfSPDK() {
		if m.Has(b.release) && slices.Contains(b.current, m.Name) {
			list = append(list, m)
		}
	}
	return list
}

// TestRealTargetMatchesTheSchema checks the schema against a real target: the methods that it
// lists, the results of all reading methods, and that it refuses calls that the schema does not
// allow.
func TestRealTargetMatchesTheSchema(t *testing.T) {
	socket := realtarget.Socket(t)
	b := &bench{T: t, caller: spdkrpc.NewSocket(socket), doc: rpcschema.Default(), tally: newTally()}
	defer b.caller.Close()
	var err error
	b.release, err = spdkrpc.NewClient(b.caller).Release(t.Context())
	require.NoError(t, err)
	names, err := b.call("rpc_get_methods", map[string]any{"include_aliases": true})
	require.NoError(t, err)
	recode(t, names, &b.listed)
	names, err = b.call("rpc_get_methods", map[string]any{"current": true})
	require.NoError(t, err)
	recode(t, names, &b.current)
	if b.inStartup() { // it would wait
		b.current = slices.DeleteFunc(b.current, func(name string) bool { return name == "framework_wait_init" })
	}

	words := b.prepare()
	t.Run("drift", func(t *testing.T) { b.with(t).drift() })
	t.Run("states", func(t *testing.T) { b.with(t).states() })
	if b.inStartup() {
		t.Run("results", func(t *testing.T) { b.with(t).results(nil) })
		t.Run("refusals", func(t *testing.T) { b.with(t).refusals() })
		t.Run("without parameters", func(t *testing.T) { b.with(t).withoutParams() })
		return
	}
	t.Run("make", func(t *testing.T) { b.with(t).play("make.calls", words) })
	t.Run("results", func(t *testing.T) { b.with(t).results(b.with(t).names()) })
	t.Run("change", func(t *testing.T) { b.with(t).play("change.calls", words) })
	t.Run("refusals", func(t *testing.T) { b.with(t).refusals() })
	t.Run("without parameters", func(t *testing.T) { b.with(t).withoutParams() })
}

func (b *bench) with(t *testing.T) *bench {
	c := *b
	c.T = t
	return &c
}

func (b *bench) drift() {
	report := drift.Live(b.doc, b.listed, b.release)
	for _, d := range report.Unexplained() {
		b.Error(d)
	}
	b.Logf("%s: %d methods listed", b.release, len(b.listed))
}

// inStartup reports whether the target is waiting for framework_start_init.
func (b *bench) inStartup() bool { return slices.Contains(b.current, "framework_start_init") }

// states compares the methods that the schema allows in the current state with the target's own
// list.
func (b *bench) states() {
	state := "runtime"
	if b.inStartup() {
		state = "startup"
	}
	for _, name := range b.listed {
		if m, ok := b.doc.Method(name); ok && name != "framework_wait_init" && !(states[name].why != "" && states[name].in(b.release)) {
			assert.Equal(b, slices.Contains(m.State, state), slices.Contains(b.current, name), "%s in state %s", name, state)
		}
	}
}

// results calls every method that only reads, with the required parameters and with all of them,
// and validates the results.
func (b *bench) results(names map[string]string) {
	answered, refused := 0, map[string]error{}
	for _, m := range b.methods() {
		if m.Mutates {
			continue
		}
		for _, params := range b.queries(m, names) {
			result, err := b.call(m.Name, params)
			if err != nil {
				refused[m.Name] = errors.Join(refused[m.Name], err)
				continue
			}
			delete(refused, m.Name)
			answered++
			var v rpcschema.Violations
			if err := b.doc.ValidateResult(m.Name, result, b.release); errors.As(err, &v) {
				text, _ := jsonrpc.Marshal(result)
				b.Errorf("%s %v: %v in %.2000s", m.Name, params, v, text)
			}
		}
	}
	b.alive("the queries")
	for method, err := range refused {
		assert.NotEmpty(b, unanswered[method], "%s was refused, and is not an exception: %v", method, err)
	}
	for method := range unanswered {
		if m, ok := b.doc.Method(method); ok && m.Has(b.release) && slices.Contains(b.current, method) {
			assert.Contains(b, refused, method, "is an exception, but was answered")
		}
	}
	b.Logf("%d results validated; refused: %s", answered, strings.Join(slices.Sorted(maps.Keys(refused)), ", "))
}

// queries returns the parameters for the calls of a reading method.
func (b *bench) queries(m *rpcschema.Method, names map[string]string) []map[string]any {
	if special, ok := specialQueries[m.Name]; ok {
		return special
	}
	k := sample.Maker{Document: b.doc, Release: b.release, Names: names}
	list := []map[string]any{k.Params(m)}
	// add each of the other parameters separately, because some exclude each other
	for _, p := range m.Params {
		if !p.Required && p.Schema.Has(b.release) && p.Schema.Resource != "" && names[p.Schema.Resource] != "" {
			params := k.Params(m)
			params[p.Name] = names[p.Schema.Resource]
			list = append(list, params)
		}
	}
	return list
}

// refusals sends every broken call that was not already sent for existing objects. These calls name
// objects that do not exist, so nothing happens if SPDK does not refuse them. At the end, refusals
// logs a summary.
func (b *bench) refusals() {
	for _, m := range b.methods() {
		for _, k := range []sample.Maker{{Document: b.doc, Release: b.release, Names: nowhere}, {Document: b.doc, Release: b.release, Full: true, Names: nowhere}} {
			if untouchable[m.Name] != "" {
				continue
			}
			before := len(b.tally.refused)
			b.refuses(m, broken.Calls(k, m), false)
			if safe(m) {
				_, err := b.call(m.Name, k.Params(m))
				b.prove(before, err)
			}
		}
		b.alive("broken calls of " + m.Name)
	}
	for key := range b.tally.unused {
		if b.stale(key) {
			b.Errorf("%s: listed as accepted, but refused", key)
		}
	}
	b.Logf("%d broken calls, %d refused, %d of them certainly for the mistake",
		len(b.tally.seen), len(b.tally.refused), len(b.tally.proven))
}

// refuses sends broken calls that were not sent before. SPDK must refuse all of them except the
// listed exceptions. Calls that SPDK nevertheless accepts are not sent for existing objects.
func (b *bench) refuses(m *rpcschema.Method, calls []broken.Call, there bool) {
	if untouchable[m.Name] != "" {
		return
	}
	for _, call := range calls {
		id := m.Name + " " + strings.ReplaceAll(call.What, " ", "-") + " " + cmp.Or(call.Pointer, "/")
		if b.tally.seen[id] {
			continue
		}
		key := exceptionFor(id, b.release)
		if accepted[key].unsent || there && key != "" {
			continue
		}
		b.tally.seen[id] = true
		_, err := b.call(m.Name, call.Params)
		switch {
		case errors.Is(err, spdkrpc.OutcomeUnknown) || errors.Is(err, spdkrpc.Unreachable):
			b.Errorf("%s: not answered: %v", id, err)
			b.alive(id)
		case err != nil:
			b.tally.refused = append(b.tally.refused, refusal{id, err})
		case key != "":
			delete(b.tally.unused, key)
		default:
			text, _ := jsonrpc.Marshal(call.Params)
			b.Errorf("%s: SPDK accepts a call that the schema does not allow: %s", id, text)
		}
	}
}

// prove counts the refusals that the mistake has definitely caused, because the valid call was
// accepted or was refused in a different way.
func (b *bench) prove(before int, sound error) {
	for _, r := range b.tally.refused[before:] {
		if sound == nil || !same(r.err, sound) {
			b.tally.proven[r.id] = true
		}
	}
}

// same reports whether two refusals are equal.
func same(a, b error) bool {
	var x, y *spdkrpc.Error
	return errors.As(a, &x) && errors.As(b, &y) && x.Code == y.Code && x.Message == y.Message
}
