package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A command is a call that all stages have let pass, on its way to the target.
type command struct {
	settings *settings
	conn     *target.Conn
	user     string
	method   *rpcschema.Method
	params   map[string]any
}

// withMethod returns the same user's command of another method.
func (c command) withMethod(method *rpcschema.Method) command {
	c.method = method
	return c
}

// execute makes a call that all stages have let pass: SPDK's methods are SPDK's,
// the proxy's own are answered here. What changes the target has it saved.
func (s *Server) execute(ctx context.Context, c command) (json.RawMessage, error) {
	switch name := c.method.Name; {
	case name == safeDeleteMethod:
		return s.deleteSafely(ctx, c)
	case c.settings.snapshotsInUse == config.SnapshotsAllow:
	case name == snapshotMethod:
		return s.takeSnapshot(ctx, c)
	case name == deleteMethod:
		return s.deleteLvol(ctx, c)
	case changesBelow[name] != "":
		return s.changeBelow(ctx, c)
	}
	give, err := s.shareWithFreezing(ctx, c.method, c.params)
	if err != nil {
		return nil, err
	}
	defer give()
	return s.forward(ctx, c)
}

// forward makes a call, and has what it changes saved. What it changes must be kept
// from being frozen.
func (s *Server) forward(ctx context.Context, c command) (json.RawMessage, error) {
	call := func() (json.RawMessage, error) {
		return c.conn.Call(ctx, c.user, c.method.Name, c.params, c.settings.timeoutOf(c.method.Name))
	}
	changes := c.method.Mutates
	if c.method.ServedBy == rpcschema.ServedByProxy {
		own := ownMethods[c.method.Name]
		if !s.offers(c.method) {
			return nil, &notOfferedError{c.method.Name, own.key}
		}
		changes = own.changes
		call = func() (json.RawMessage, error) { return s.serveOwn(ctx, own, c) }
	}
	if s.restart.saver == nil || !changes {
		return call()
	}
	s.restart.saver.Before(context.WithoutCancel(ctx))
	result, err := call()
	if err == nil || errors.Is(err, spdkrpc.OutcomeUnknown) {
		s.restart.saver.Changed(c.method.Name, c.params)
	}
	return result, err
}

// serveOwn answers one of the proxy's own methods. Those of keys are made one after the
// other.
func (s *Server) serveOwn(ctx context.Context, own ownMethod, c command) (json.RawMessage, error) {
	if own.key == "target.keys" {
		give, err := s.restart.keys.Acquire(ctx, c.user)
		if err != nil {
			return nil, err
		}
		defer give()
	}
	return own.serve(s, ctx, rawCaller(c.conn, c.user, c.settings), c.params)
}

// noteLateChange has saved what a call changed that SPDK executed after its deadline.
// It was noted as a change at its deadline, too, but SPDK may have told its
// configuration before it executed the call.
func (s *Server) noteLateChange(name string, params map[string]any, err error) {
	method, known := s.schema.Method(name)
	if s.restart.saver == nil || !known || !method.Mutates || err != nil && !errors.Is(err, spdkrpc.OutcomeUnknown) {
		return
	}
	s.containPanic("late reply", func() { s.restart.saver.Changed(name, params) })
}

// An ownMethod is one that the proxy answers by itself.
type ownMethod struct {
	key     string // of the configuration, without which it is not offered; "": always
	changes bool   // the target's configuration
	serve   func(s *Server, ctx context.Context, ask keys.Ask, params map[string]any) (json.RawMessage, error)
}

var ownMethods = map[string]ownMethod{
	"spdkgate_key_add": {"target.keys", true, func(s *Server, ctx context.Context, ask keys.Ask, params map[string]any) (json.RawMessage, error) {
		name, _ := params["name"].(string)
		secret, _ := params["secret"].(string)
		return marshalResult(true, s.restart.keys.Add(ctx, ask, name, secret))
	}},
	"spdkgate_key_remove": {"target.keys", true, func(s *Server, ctx context.Context, ask keys.Ask, params map[string]any) (json.RawMessage, error) {
		name, _ := params["name"].(string)
		return marshalResult(true, s.restart.keys.Remove(ctx, ask, name))
	}},
	safeSnapshotMethod: {"", false, func(s *Server, ctx context.Context, _ keys.Ask, params map[string]any) (json.RawMessage, error) {
		return s.takeSnapshots(ctx, params)
	}},
	safeDeleteMethod: {"", false, nil}, // see execute
	statusMethod: {"target.save", false, func(s *Server, _ context.Context, _ keys.Ask, _ map[string]any) (json.RawMessage, error) {
		return marshalResult(savedConfig(s.restart.saver.Status()), nil)
	}},
	"spdkgate_config_save": {"target.save", false, func(s *Server, ctx context.Context, _ keys.Ask, params map[string]any) (json.RawMessage, error) {
		accept, _ := params["accept_loss"].(bool)
		err := s.restart.saver.Save(context.WithoutCancel(ctx), accept)
		return marshalResult(savedConfig(s.restart.saver.Status()), err)
	}},
}

// offers says whether a method is there at all, as the configuration has it.
func (s *Server) offers(m *rpcschema.Method) bool {
	switch ownMethods[m.Name].key {
	case "target.keys":
		return s.restart.keys != nil
	case "target.save":
		return s.restart.saver != nil
	}
	return true
}

const maxMissingListed = 100 // of what is missing

func savedConfig(now persist.Status) spdkrpc.ProxySavedConfig {
	status := spdkrpc.ProxySavedConfig{
		File: now.File, Pending: now.Pending, Unsettled: now.Unsettled, Failed: now.Failed, Missing: []string{}, MissingCount: uint32(len(now.Missing)),
	}
	for _, c := range now.Missing[:min(len(now.Missing), maxMissingListed)] {
		status.Missing = append(status.Missing, c.String())
	}
	if !now.SavedAt.IsZero() {
		status.SavedAt = new(now.SavedAt.Format(time.RFC3339))
	}
	if !now.Chosen.IsZero() {
		status.ChosenAt = new(now.Chosen.Format(time.RFC3339))
	}
	if len(now.Missing) > 0 && !now.Unsettled || status.ChosenAt != nil {
		status.HeldFile = new(now.Held)
	}
	return status
}

// marshalResult makes JSON of a result of the proxy's own.
func marshalResult(v any, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
