package spdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// dispatch handles one call. It finds the method, decodes the parameters, applies a matching fault,
// and makes the engine execute the call.
func (s *server) dispatch(r *request) {
	m, params, err := s.admit(r)
	if err != nil {
		s.record(r, nil, err)
		r.fail(err)
		return
	}
	fault := s.target.faults.strike(m.Name)
	switch {
	case fault != nil:
		s.running.Go(func() { s.faulty(r, m, params, fault) })
	case slow(m.Name, params), s.target.opts.Work > 0 && strings.HasPrefix(m.Name, "bdev_lvol_"):
		s.running.Go(func() { s.execute(r, m, params) })
	default:
		s.execute(r, m, params)
	}
}

// admit finds the method and decodes its parameters.
func (s *server) admit(r *request) (*method, map[string]any, *jsonrpc.Error) {
	m, ok := s.target.methods.find(r.method)
	if !ok {
		return nil, nil, jsonrpc.Errorf(jsonrpc.CodeMethodNotFound, "Method not found")
	}
	if !slices.Contains(m.State, s.engine.state()) {
		return nil, nil, jsonrpc.Errorf(jsonrpc.CodeWrongState, "Method may only be called %s framework is initialized", m.when())
	}
	if m.ignoresParams {
		return m, nil, nil
	}
	params, ok := m.decode(r.params)
	if !ok {
		return nil, nil, jsonrpc.Errorf(m.decodeError, "%s", decodeTexts[m.decodeError])
	}
	return m, params, nil
}

var decodeTexts = map[int]string{
	jsonrpc.CodeInvalidParams: "Invalid parameters",
	jsonrpc.CodeInternalError: "spdk_json_decode_object failed",
}

// slow reports whether a call may wait or copy data. Such a call does not block later calls on the
// same connection.
func slow(method string, params map[string]any) bool {
	switch method {
	case "bdev_lvol_clone", "bdev_lvol_snapshot", "framework_wait_init":
		return true
	case "bdev_get_bdevs":
		return params["timeout"] != nil
	}
	return false
}

// execute makes the engine execute a call, and sends the response.
func (s *server) execute(r *request, m *method, params map[string]any) {
	result, err := s.perform(r, m, params)
	var answer *jsonrpc.Error
	switch {
	case err == nil:
		r.succeed(result)
	case errors.Is(err, errSilent):
	case errors.Is(err, errCrash):
		s.crash()
	case errors.As(err, &answer):
		r.fail(answer)
	}
}

// crash crashes the target from within a call, and waits until the target is down.
func (s *server) crash() {
	go s.target.crash(s)
	<-s.down
}

// perform makes the engine execute a call without sending a response. The error is errSilent,
// errCrash, or a *jsonrpc.Error to respond with.
func (s *server) perform(r *request, m *method, params map[string]any) (json.RawMessage, error) {
	result, err := m.run(s.engine, params)
	if err == nil {
		s.record(r, params, nil)
		return m.shape(result)
	}
	if errors.Is(err, errDead) {
		s.record(r, params, nil)
		return nil, errSilent
	}
	if errors.Is(err, errSilent) || errors.Is(err, errCrash) {
		s.record(r, params, nil)
		return nil, err
	}
	var answer *jsonrpc.Error
	if !errors.As(err, &answer) {
		answer = jsonrpc.Errorf(jsonrpc.CodeInternalError, "%s", err)
	}
	s.record(r, params, answer)
	return nil, answer
}

// record logs a call, and records it for the tests.
func (s *server) record(r *request, params map[string]any, err *jsonrpc.Error) {
	s.target.journal.add(Call{Method: r.method, Params: params, Err: err})
	log := s.target.opts.Logger
	if !log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	code := 0
	if err != nil {
		code = err.Code
	}
	log.Debug("call", "method", r.method, "params", rpcschema.Default().Redact(r.method, params), "code", code)
}

// A method is a simulated method of the target's release.
type method struct {
	*rpcschema.Method
	decoder
	run     func(e *engine, params map[string]any) (any, error)
	trimmer *trimmer // for the result
}

// when describes, for error messages, in which states a method may be called.
func (m *method) when() string {
	if slices.Contains(m.State, "startup") {
		return "before"
	}
	return "after"
}

// shape removes the members that the release does not write from a result.
func (m *method) shape(result any) (json.RawMessage, error) {
	text, err := jsonrpc.Marshal(result)
	if err == nil {
		text, err = m.trimmer.trim(text)
	}
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "result of %s: %s", m.Name, err)
	}
	return text, nil
}

// A methodTable contains the simulated methods of a release.
type methodTable struct {
	byName  map[string]*method
	aliases map[string]string
}

func newMethodTable(doc *rpcschema.Document, release rpcschema.Release) *methodTable {
	t := &methodTable{byName: map[string]*method{}, aliases: map[string]string{}}
	for name, run := range handlers {
		described, err := doc.Find(name, release)
		if err != nil {
			continue // not supported by this release
		}
		m := &method{
			Method: described, run: run, decoder: newDecoder(doc, described, release), trimmer: newTrimmer(doc, described.Result.Schema, release),
		}
		t.byName[name] = m
		for _, alias := range described.Aliases {
			t.aliases[alias] = name
		}
	}
	return t
}

func (t *methodTable) find(name string) (*method, bool) {
	if original, ok := t.aliases[name]; ok {
		name = original
	}
	m, ok := t.byName[name]
	return m, ok
}

// names lists the methods in SPDK's order: the method registered last comes first. Clients cannot
// rely on this order.
func (t *methodTable) names(state string, aliases bool) []string {
	names := []string{}
	for name, m := range t.byName {
		if state != "" && !slices.Contains(m.State, state) {
			continue
		}
		names = append(names, name)
		if aliases {
			names = append(names, m.Aliases...)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	return names
}

// handlers contains the simulated methods. Each file adds the methods that it implements.
var handlers = map[string]func(*engine, map[string]any) (any, error){}

// handle adds a method with parameters of type P and a result of type R.
func handle[P, R any](name string, run func(*engine, P) (R, error)) {
	handlers[name] = func(e *engine, params map[string]any) (any, error) {
		var p P
		if err := fill(params, &p); err != nil {
			return nil, fmt.Errorf("parameters of %s: %w", name, err)
		}
		return e.do(func() (any, error) { return run(e, p) })
	}
}

// confirm adds a method whose result is true on success.
func confirm[P any](name string, run func(*engine, P) error) {
	handle(name, func(e *engine, p P) (bool, error) { return true, run(e, p) })
}

// query adds a method without parameters.
func query[R any](name string, run func(*engine) (R, error)) {
	handlers[name] = func(e *engine, _ map[string]any) (any, error) {
		return e.do(func() (any, error) { return run(e) })
	}
}
