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

// A command is a call that all stages have allowed.
type command struct {
	settings *settings
	conn     *target.Conn
	user     string
	method   *rpcschema.Method
	params   map[string]any
	observer target.Observer
}

// withMethod returns the same user's command of another method.
func (c command) withMethod(method *rpcschema.Method) command {
	c.method = method
	return c
}

// execute makes a call that all stages have allowed: at SPDK, or here if the method is the
// proxy's own. Snapshots and changes below volumes go through the quiescer.
func (s *Server) execute(ctx context.Context, c command) (json.RawMessage, error) {
	switch name := c.method.Name; {
	case name == safeDeleteMethod:
		return s.deleteSafely(ctx, c)
	case name == deleteMethod:
		return s.deleteLvol(ctx, c)
	case unusedVolumeParam[name] != "":
		return s.changeUnused(ctx, c)
	case name == renameMethod:
		return s.renameLvol(ctx, c)
	case name == deleteStoreMethod, name == renameStoreMethod:
		return s.changeStore(ctx, c)
	case name == snapshotMethod && c.settings.snapshotsInUse != config.SnapshotsAllow:
		return s.takeSnapshot(ctx, c)
	}
	return s.forwardShared(ctx, c)
}

// forward makes a call, and has the configuration saved if the call changed it. If the change
// decides who reaches data, forward returns when it is saved. The caller holds the locks of the
// objects, or has frozen the objects itself.
func (s *Server) forward(ctx context.Context, c command) (json.RawMessage, error) {
	call := func() (json.RawMessage, error) {
		return c.conn.CallObserved(ctx, c.user, c.method.Name, c.params, c.settings.timeoutOf(c.method.Name), c.observer)
	}
	changes := c.method.Configures()
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
	saver, first := s.restart.saver, c.method.Saved == rpcschema.SavedFirst
	process := saver.Before(context.WithoutCancel(ctx), first)
	removed, err := saver.Removing(ctx, rawCaller(c.conn, c.user, c.settings), c.method.Name, c.params, process)
	if err != nil {
		return nil, err
	}
	defer removed()
	result, err := call()
	switch {
	case err == nil || errors.Is(err, spdkrpc.OutcomeUnknown):
		saver.Changed(c.method.Name, c.params)
	case saver.Lacks(c.method.Name, c.params): // SPDK has nothing to remove, but the saved file does
		saver.Changed(c.method.Name, c.params)
		if notSaved := saver.AwaitSaved(ctx, process); notSaved != nil {
			return nil, executed(notSaved)
		}
	}
	if err == nil && first {
		if err := saver.AwaitSaved(ctx, process); err != nil {
			return nil, executed(err)
		}
	}
	return result, err
}

// executed marks the error of a call that was executed. Quotas and ownership count it like one
// whose outcome is unknown.
func executed(err error) error { return fmt.Errorf("%w (%w)", err, spdkrpc.OutcomeUnknown) }

// serveOwn answers one of the proxy's own methods. Calls about keys run one after the other.
func (s *Server) serveOwn(ctx context.Context, own ownMethod, c command) (json.RawMessage, error) {
	if own.key == "target.keys" {
		release, err := s.restart.keys.Acquire(ctx, c.keysOf())
		if err != nil {
			return nil, err
		}
		defer release()
	}
	return own.serve(s, ctx, rawCaller(c.conn, c.user, c.settings), c)
}

// keysOf names those who share keys: the users of a tenant, or a user without one.
func (c command) keysOf() string {
	if scope := c.settings.tenancy.Of(c.user); scope != nil {
		return "tenant\x00" + scope.Name
	}
	return c.user
}

// keyShare is the quota of keys of the user's tenant.
func (c command) keyShare() keys.Share {
	scope := c.settings.tenancy.Of(c.user)
	if scope == nil {
		return keys.Share{}
	}
	return keys.Share{Most: scope.Quota.Keys, Has: func(name string) bool { return scope.Owns("key", name) }}
}

// noteLateChange has the configuration saved after a call that SPDK answered after its
// deadline. The call counted as a change at its deadline too, but SPDK may have reported its
// configuration before it executed the call.
func (s *Server) noteLateChange(name string, params map[string]any, err error) {
	method, known := s.schema.Method(name)
	if known {
		s.settings.Load().tenancy.Executed(method)
	}
	if s.restart.saver == nil || !known || !method.Configures() || err != nil && !errors.Is(err, spdkrpc.OutcomeUnknown) {
		return
	}
	s.containPanic("late reply", func() { s.restart.saver.Changed(name, params) })
}

// An ownMethod is a method that the proxy answers itself.
type ownMethod struct {
	key     string // of the configuration, which enables it; "": it is always enabled
	changes bool   // it changes the target's configuration
	serve   func(s *Server, ctx context.Context, ask keys.Ask, c command) (json.RawMessage, error)
}

var ownMethods = map[string]ownMethod{
	"spdkgate_key_add": {"target.keys", true, func(s *Server, ctx context.Context, ask keys.Ask, c command) (json.RawMessage, error) {
		name, _ := c.params["name"].(string)
		secret, _ := c.params["secret"].(string)
		return marshalResult(true, s.restart.keys.Add(ctx, ask, c.keyShare(), name, secret))
	}},
	"spdkgate_key_remove": {"target.keys", true, func(s *Server, ctx context.Context, ask keys.Ask, c command) (json.RawMessage, error) {
		name, _ := c.params["name"].(string)
		return marshalResult(true, s.restart.keys.Remove(ctx, ask, name))
	}},
	safeSnapshotMethod: {"", false, func(s *Server, ctx context.Context, _ keys.Ask, c command) (json.RawMessage, error) {
		return s.takeSnapshots(ctx, c)
	}},
	barrierMethod: {"", false, func(s *Server, ctx context.Context, _ keys.Ask, c command) (json.RawMessage, error) {
		return s.passBarrier(ctx, c)
	}},
	safeDeleteMethod: {"", false, nil}, // see execute
	targetInfoMethod: {"", false, func(s *Server, ctx context.Context, _ keys.Ask, c command) (json.RawMessage, error) {
		return s.targetInfo(ctx, c)
	}},
	statusMethod: {"target.save", false, func(s *Server, _ context.Context, _ keys.Ask, _ command) (json.RawMessage, error) {
		return marshalResult(savedConfig(s.restart.saver.Status()), nil)
	}},
	"spdkgate_config_await": {"target.save", false, func(s *Server, ctx context.Context, _ keys.Ask, c command) (json.RawMessage, error) {
		list, err := s.awaitSaved(ctx, c)
		return marshalResult(list, err)
	}},
	"spdkgate_config_list_saved": {"target.save", false, func(s *Server, _ context.Context, _ keys.Ask, _ command) (json.RawMessage, error) {
		files, err := s.restart.savedFiles()
		return marshalResult(files, err)
	}},
	"spdkgate_config_get_saved": {"target.save", false, func(s *Server, _ context.Context, _ keys.Ask, c command) (json.RawMessage, error) {
		name, _ := c.params["name"].(string)
		file, err := s.restart.savedText(c.method.Name, name)
		return marshalResult(file, err)
	}},
	"spdkgate_config_save": {"target.save", false, func(s *Server, ctx context.Context, _ keys.Ask, c command) (json.RawMessage, error) {
		accept, _ := c.params["accept_loss"].(bool)
		err := s.restart.saver.Save(context.WithoutCancel(ctx), accept)
		return marshalResult(savedConfig(s.restart.saver.Status()), err)
	}},
}

// awaitSaved answers spdkgate_config_await.
func (s *Server) awaitSaved(ctx context.Context, c command) (list []spdkrpc.ProxyMissingExport, err error) {
	p, err := paramsOf[spdkrpc.SpdkgateConfigAwaitParams](c)
	if err != nil {
		return nil, err
	}
	process, err := persist.ProcessAt(s.config.Target.Socket)
	if err == nil {
		err = s.restart.saver.AwaitSaved(ctx, process)
	}
	if err != nil {
		return nil, err
	}
	list = []spdkrpc.ProxyMissingExport{}
	for _, e := range s.restart.saver.Status().MissingExports() {
		if (p.NQN == nil || *p.NQN == e.NQN) && (p.Host == nil || *p.Host == e.Host) {
			m := spdkrpc.ProxyMissingExport{Method: e.Method, NQN: e.NQN}
			if e.Host != "" {
				m.Host = &e.Host
			}
			list = append(list, m)
		}
	}
	return list, nil
}

// offers reports whether the configuration enables a method.
func (s *Server) offers(m *rpcschema.Method) bool {
	switch ownMethods[m.Name].key {
	case "target.keys":
		return s.restart.keys != nil
	case "target.save":
		return s.restart.saver != nil
	}
	return true
}

// maxMissingListed bounds how many missing calls a status lists.
const maxMissingListed = 100

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

// marshalResult returns the JSON of a result that the proxy makes itself, or err.
func marshalResult(v any, err error) (json.RawMessage, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
