package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/keys"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// execute makes a call that all stages have let pass: SPDK's methods are SPDK's,
// the proxy's own are answered here. What changes the target has it saved.
func (s *Server) execute(ctx context.Context, now *settings, conn *target.Conn, user string, method *rpcschema.Method, params map[string]any) (json.RawMessage, error) {
	pass := func(as string, params map[string]any) (json.RawMessage, error) {
		sent, _ := s.schema.Method(as)
		return s.pass(ctx, now, conn, user, sent, params)
	}
	switch {
	case method.Name == safeDeleteMethod:
		return s.deleteSafely(ctx, params, pass)
	case now.snapshotsInUse == config.SnapshotsAllow:
	case method.Name == snapshotMethod:
		return s.takeSnapshot(ctx, params)
	case method.Name == deleteMethod:
		return s.deleteLvol(ctx, params, pass)
	case changesBelow[method.Name] != "":
		return s.changeBelow(ctx, method, params, pass)
	}
	give, err := s.unchanging(ctx, method, params)
	if err != nil {
		return nil, err
	}
	defer give()
	return pass(method.Name, params)
}

// pass makes a call, and has what it changes saved. What it changes must be kept
// from being frozen.
func (s *Server) pass(ctx context.Context, now *settings, conn *target.Conn, user string, method *rpcschema.Method, params map[string]any) (json.RawMessage, error) {
	call := func() (json.RawMessage, error) {
		return conn.Call(ctx, user, method.Name, params, now.timeoutOf(method.Name))
	}
	changes := method.Mutates
	if method.ServedBy == rpcschema.ServedByProxy {
		own := ownMethods[method.Name]
		if !s.offers(method) {
			return nil, &notOfferedError{method.Name, own.key}
		}
		changes = own.changes
		call = func() (json.RawMessage, error) {
			if own.key == "target.keys" {
				give, err := s.restart.keys.Turn(ctx, user)
				if err != nil {
					return nil, err
				}
				defer give()
			}
			return own.serve(s, ctx, keys.Ask(asking(conn, user, now)), params)
		}
	}
	if s.restart.saver == nil || !changes {
		return call()
	}
	s.restart.saver.Before(context.WithoutCancel(ctx))
	result, err := call()
	if err == nil || errors.Is(err, spdkrpc.OutcomeUnknown) {
		s.restart.saver.Changed(method.Name, params)
	}
	return result, err
}

// changedLate has saved what a call changed that SPDK executed after its deadline.
// It was noted as a change at its deadline, too, but SPDK may have told its
// configuration before it executed the call.
func (s *Server) changedLate(name string, params map[string]any, err error) {
	method, known := s.schema.Method(name)
	if s.restart.saver == nil || !known || !method.Mutates || err != nil && !errors.Is(err, spdkrpc.OutcomeUnknown) {
		return
	}
	s.contained("late reply", func() { s.restart.saver.Changed(name, params) })
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
		return orText(true, s.restart.keys.Add(ctx, ask, name, secret))
	}},
	"spdkgate_key_remove": {"target.keys", true, func(s *Server, ctx context.Context, ask keys.Ask, params map[string]any) (json.RawMessage, error) {
		name, _ := params["name"].(string)
		return orText(true, s.restart.keys.Remove(ctx, ask, name))
	}},
	safeSnapshotMethod: {"", false, func(s *Server, ctx context.Context, _ keys.Ask, params map[string]any) (json.RawMessage, error) {
		return s.takeSnapshots(ctx, params)
	}},
	safeDeleteMethod: {"", false, nil}, // see execute
	statusMethod: {"target.save", false, func(s *Server, _ context.Context, _ keys.Ask, _ map[string]any) (json.RawMessage, error) {
		return orText(savedConfig(s.restart.saver.Status()), nil)
	}},
	"spdkgate_config_save": {"target.save", false, func(s *Server, ctx context.Context, _ keys.Ask, params map[string]any) (json.RawMessage, error) {
		accept, _ := params["accept_loss"].(bool)
		err := s.restart.saver.Save(context.WithoutCancel(ctx), accept)
		return orText(savedConfig(s.restart.saver.Status()), err)
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

// A notOfferedError means that the configuration does without what was asked for.
type notOfferedError struct{ method, key string }

func (e *notOfferedError) Error() string {
	return fmt.Sprintf("%s is not offered here, as the proxy's configuration has no %s: ask whoever runs this proxy", e.method, e.key)
}

const mostTold = 100 // of what is missing

func savedConfig(now persist.Status) spdkrpc.ProxySavedConfig {
	told := spdkrpc.ProxySavedConfig{
		File: now.File, Pending: now.Pending, Unsettled: now.Unsettled, Failed: now.Failed, Missing: []string{}, MissingCount: uint32(len(now.Missing)),
	}
	for _, c := range now.Missing[:min(len(now.Missing), mostTold)] {
		told.Missing = append(told.Missing, c.String())
	}
	if !now.SavedAt.IsZero() {
		told.SavedAt = new(now.SavedAt.Format(time.RFC3339))
	}
	if !now.Chosen.IsZero() {
		told.ChosenAt = new(now.Chosen.Format(time.RFC3339))
	}
	if len(now.Missing) > 0 && !now.Unsettled || told.ChosenAt != nil {
		told.HeldFile = new(now.Held)
	}
	return told
}
