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
	Tenant   *tenancy.Scope // nil if the user has no tenant
	Method   *rpcschema.Method
	Params   map[string]any
	Observer target.Observer

	Timeout         func(method string) time.Duration // how long to wait for SPDK's response to a method
	SnapshotsInUse  string                            // target.snapshots_in_use
	AcceptLoading   bool                              // target.accept_loading_what_hosts_write
	AcceptUncounted bool                              // target.accept_changes_without_counts

	// Reserve counts bytes against the user's memory limit until release is called. It fails if
	// they would exceed the limit. If Reserve is nil, there is no limit.
	Reserve func(bytes int) (release func(), err error)
}

// Ask makes another call for this command, over the same connection and on the user's behalf.
func (c Command) Ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	return c.Conn.Call(ctx, c.User, method, params, c.Timeout(method))
}

// An Executor executes the calls to one target. It is safe for concurrent use.
type Executor struct {
	Options
	restart  *restart
	quiescer *quiesce.Quiescer
	barriers barrier.Barriers // for simultaneous snapshots on several targets
	changes  *changesReader
	// attaching contains a value while a call attaches a file.
	attaching chan struct{}
}

// Options configures an Executor.
type Options struct {
	Config *config.Config
	Schema *rpcschema.Document
	Log    *slog.Logger
	Target *target.Target

	Observer quiesce.Observer
	Timeout  func(method string) time.Duration // for the Executor's own calls
	Executed func(*rpcschema.Method)           // called after a call that may have changed the target
	Contain  func(where string, f func())      // runs f, and logs a panic in it
	Stopped  <-chan struct{}                   // closed when the proxy accepts no more requests
}

// New returns an Executor, and opens the directories named in its configuration.
func New(o Options) (*Executor, error) {
	e := &Executor{Options: o, changes: newChangesReader(), attaching: make(chan struct{}, 1)}
	var err error
	if e.restart, err = newRestart(o.Config, o.Schema, o.Log, e.targetNow); err != nil {
		return nil, err
	}
	if e.quiescer, err = newQuiescer(o.Config, o.Target, o.Log, o.Observer, &e.changes.reader, e.removing()); err != nil {
		return nil, err
	}
	return e, nil
}

// Execute calls an SPDK method. It leaves snapshots, and changes that affect snapshots in use, to
// the Quiescer.
func (e *Executor) Execute(ctx context.Context, c Command) (json.RawMessage, error) {
	if err := e.checkExternal(ctx, c); err != nil {
		return nil, err
	}
	if err := e.checkSaveable(c); err != nil {
		return nil, err
	}
	forwarded := c
	c.Observer.Answered = nil // the call is not yet finished when SPDK responds
	switch name := c.Method.Name; {
	case name == deleteMethod:
		return e.deleteLvol(ctx, c)
	case unusedVolumeParam[name] != "":
		return e.changeUnused(ctx, c)
	case name == renameMethod:
		return e.renameLvol(ctx, c)
	case name == deleteStoreMethod, name == renameStoreMethod:
		return e.changeStore(ctx, c)
	case name == growStoreMethod:
		if err := e.checkGrows(ctx, c); err != nil {
			return nil, err
		}
	case name == snapshotMethod && c.SnapshotsInUse != config.SnapshotsAllow:
		return e.takeSnapshot(ctx, c)
	case attachesFile[name]:
		return e.attachFile(ctx, c)
	}
	if c.Tenant != nil { // filtering the result may require further calls
		forwarded = c
	}
	return e.forwardShared(ctx, forwarded)
}

// forward sends a call to SPDK. The caller must have locked or frozen the objects.
func (e *Executor) forward(ctx context.Context, c Command) (json.RawMessage, error) {
	changes := c.Method.Configures()
	if changes && e.restart.saver != nil { // the client may be waiting for the save
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

// change makes a call that changes the target's configuration, and schedules a save. If the change
// affects access to data, or limits a volume, change returns only after the save.
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
	case saver.Lacks(c.Method.Name, c.Params): // only the saved file contains the object to remove
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

// executed marks err as the error of a call that was executed. For quotas and ownership, such a
// call is like a call with an unknown outcome.
func executed(err error) error { return fmt.Errorf("%w (%w)", err, spdkrpc.OutcomeUnknown) }

// NoteLate schedules a save of the configuration when SPDK responds to a call after the deadline.
// The call already counted as a change at the deadline, but the configuration that was saved then
// may not include it.
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
