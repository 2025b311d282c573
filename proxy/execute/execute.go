package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spdkgate/spdkgate/proxy/barrier"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Command is a call that every stage has allowed.
type Command struct {
	Conn     *target.Conn // nil if the method needs no target
	User     string
	Tenant   *tenancy.Scope // nil: the user has none
	Method   *rpcschema.Method
	Params   map[string]any
	Observer target.Observer

	Timeout         func(method string) time.Duration // how long to wait for SPDK's response
	SnapshotsInUse  string                            // target.snapshots_in_use
	AcceptLoading   bool                              // target.accept_loading_what_hosts_write
	AcceptUncounted bool                              // target.accept_changes_without_counts
}

// Ask makes a call that this command needs, on the same connection and in the user's name.
func (c Command) Ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	return c.Conn.Call(ctx, c.User, method, params, c.Timeout(method))
}

// An Executor carries out the calls of one target. Its methods may be called concurrently.
type Executor struct {
	Options
	restart  *restart
	quiescer *quiesce.Quiescer
	barriers barrier.Barriers // of snapshots on several targets
	changes  *changesReader
}

// Options of an Executor.
type Options struct {
	Config *config.Config
	Schema *rpcschema.Document
	Log    *slog.Logger
	Target *target.Target

	Observer quiesce.Observer
	Timeout  func(method string) time.Duration // for calls that the Executor makes by itself
	Executed func(*rpcschema.Method)           // called after a call that may have changed the target
	Contain  func(where string, f func())      // runs f, and logs a panic in it
	Stopped  <-chan struct{}                   // closed when the proxy accepts no more requests
}

// New makes an Executor, and opens the directories that its configuration names.
func New(o Options) (*Executor, error) {
	e := &Executor{Options: o, changes: newChangesReader()}
	var err error
	if e.restart, err = newRestart(o.Config, o.Schema, o.Log, e.targetNow); err != nil {
		return nil, err
	}
	if e.quiescer, err = newQuiescer(o.Config, o.Target, o.Log, o.Observer); err != nil {
		return nil, err
	}
	return e, nil
}

// Execute makes a call of a method of SPDK. Snapshots and changes below volumes go through the
// Quiescer.
func (e *Executor) Execute(ctx context.Context, c Command) (json.RawMessage, error) {
	if err := e.checkExternal(ctx, c); err != nil {
		return nil, err
	}
	forwarded := c
	c.Observer.Answered = nil // work that takes long follows SPDK's answer
	switch name := c.Method.Name; {
	case name == deleteMethod:
		return e.deleteLvol(ctx, c)
	case unusedVolumeParam[name] != "":
		return e.changeUnused(ctx, c)
	case name == renameMethod:
		return e.renameLvol(ctx, c)
	case name == deleteStoreMethod, name == renameStoreMethod:
		return e.changeStore(ctx, c)
	case name == snapshotMethod && c.SnapshotsInUse != config.SnapshotsAllow:
		return e.takeSnapshot(ctx, c)
	}
	if c.Tenant != nil { // whose result may need further calls
		forwarded = c
	}
	return e.forwardShared(ctx, forwarded)
}

// forward makes a call at SPDK. The caller holds the locks of the objects, or has frozen the
// objects itself.
func (e *Executor) forward(ctx context.Context, c Command) (json.RawMessage, error) {
	changes := c.Method.Configures()
	if changes && e.restart.saver != nil { // which may be waited for
		c.Observer.Answered = nil
	}
	call := func() (json.RawMessage, error) {
		return c.Conn.CallObserved(ctx, c.User, c.Method.Name, c.Params, c.Timeout(c.Method.Name), c.Observer)
	}
	if !changes {
		return call()
	}
	return e.change(ctx, c, call)
}

// change makes a call that changes the target's configuration, and has the configuration saved. If
// the change decides who reaches data or limits a volume, change returns when it is saved.
func (e *Executor) change(ctx context.Context, c Command, call func() (json.RawMessage, error)) (json.RawMessage, error) {
	saver, first := e.restart.saver, c.Method.Saved == rpcschema.SavedFirst
	if saver == nil {
		return call()
	}
	process := saver.Before(context.WithoutCancel(ctx), first)
	removed, err := saver.Removing(ctx, c.Ask, c.Method.Name, c.Params, process)
	if err != nil {
		return nil, err
	}
	defer removed()
	result, err := call()
	switch {
	case err == nil || errors.Is(err, spdkrpc.OutcomeUnknown):
		saver.Changed(c.Method.Name, c.Params)
	case saver.Lacks(c.Method.Name, c.Params): // SPDK has nothing to remove, but the saved file does
		saver.Changed(c.Method.Name, c.Params)
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

// NoteLate has the configuration saved after a call that SPDK answered after its deadline. The call
// counted as a change at its deadline too, but SPDK may have reported its configuration before it
// executed the call.
func (e *Executor) NoteLate(name string, params map[string]any, err error) {
	method, known := e.Schema.Method(name)
	if known {
		e.Executed(method)
	}
	if e.restart.saver == nil || !known || !method.Configures() || err != nil && !errors.Is(err, spdkrpc.OutcomeUnknown) {
		return
	}
	e.Contain("late reply", func() { e.restart.saver.Changed(name, params) })
}
