package execute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"github.com/spdkgate/spdkgate/lvstore/changes"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/proxy/quiesce"
	"github.com/spdkgate/spdkgate/proxy/target"
)

// newQuiescer creates the Quiescer, which freezes volumes for snapshots, and opens its journal.
func newQuiescer(c *config.Config, t *target.Target, log *slog.Logger, observer quiesce.Observer, metadata *changes.Reader, removing removalRecorder) (*quiesce.Quiescer, error) {
	uids, err := c.PeerUIDs()
	if err != nil {
		return nil, err
	}
	o := quiesce.Options{
		At: quiesce.Place{Socket: c.Target.Socket, PeerUIDs: uids}, Connect: (&connections{}).connect, Process: persist.ProcessAt, Deleting: t.Deleting, Removing: removing, Enter: enterOperation(t), HasExtentPage: metadata.HasExtentPage, Log: log, Observer: observer,
	}
	if c.Target.Freeze.Dir != "" {
		if o.Folder, err = quiesce.OpenFolder(c.Target.Freeze.Dir); err != nil {
			return nil, err
		}
		log.Info("volumes in use can be frozen for snapshots", "journal", c.Target.Freeze.Dir)
	} else {
		log.Warn("snapshots of volumes in use are refused: there is no freeze journal. Set target.freeze.dir")
	}
	return quiesce.New(o), nil
}

// A removalRecorder records a deletion in the saver's journal; see quiesce.Options.Removing.
type removalRecorder = func(ctx context.Context, t *quiesce.Target, uuid string) (end func(), err error)

// removing returns nil if the configuration is not saved.
func (e *Executor) removing() removalRecorder {
	saver := e.restart.saver
	if saver == nil {
		return nil
	}
	return func(ctx context.Context, t *quiesce.Target, uuid string) (func(), error) {
		ask := func(ctx context.Context, method string, params map[string]any) (text json.RawMessage, err error) {
			err = t.Caller.Call(ctx, method, params, &text)
			return text, err
		}
		params := map[string]any{"name": uuid}
		process := saver.Before(context.WithoutCancel(ctx), false)
		removed, err := saver.Removing(ctx, ask, deleteMethod, params, process)
		return func() {
			saver.Changed(deleteMethod, params)
			removed()
		}, err
	}
}

// These constants limit the Quiescer's concurrent operations. Each operation uses one of the 64
// connections that SPDK allows. A single user can occupy at most half of the slots.
const (
	maxOperations = 16
	maxBarriers   = 16 // for snapshots with a barrier, which have to wait for clients
	operationWait = 10 * time.Second
)

// enterOperation returns the function that grants slots to the Quiescer's operations. An operation
// counts as a running call of its user. Snapshots with a barrier use separate slots, so that other
// operations do not have to wait for those snapshots' clients.
func enterOperation(t *target.Target) func(ctx context.Context, user string, awaits bool) (func(), error) {
	operations := target.NewSlots(target.Limits{Total: maxOperations, PerUser: maxOperations}, operationWait)
	barriers := target.NewSlots(target.Limits{Total: maxBarriers, PerUser: maxBarriers}, operationWait)
	return func(ctx context.Context, user string, awaits bool) (leave func(), err error) {
		endCall, err := t.AcquireSlot(ctx, user)
		if err != nil {
			return nil, err
		}
		slots := operations
		if awaits {
			slots = barriers
		}
		release, err := slots.Acquire(ctx, user)
		if err != nil {
			endCall()
			return nil, err
		}
		return func() { release(); endCall() }, nil
	}
}

// A directTarget is a Target with a channel that is closed when its connection ends.
type directTarget struct {
	quiesce.Target
	gone <-chan struct{}
}

func (t *directTarget) ended() bool {
	select {
	case <-t.gone:
		return true
	default:
		return false
	}
}

// connectDirectly connects to one process of the target. It identifies the process only after
// connecting, so that the connection is already dead if the process was replaced in between.
func connectDirectly(ctx context.Context, at quiesce.Place) (*directTarget, error) {
	conn, err := target.New(target.Config{Socket: at.Socket, PeerUIDs: at.PeerUIDs}).Dial(ctx)
	var down *target.DownError
	if errors.As(err, &down) && (errors.Is(down.Err, fs.ErrNotExist) || errors.Is(down.Err, syscall.ECONNREFUSED)) {
		return nil, fmt.Errorf("%w: %w", quiesce.ErrAway, err)
	}
	if err != nil {
		return nil, err
	}
	process, err := persist.ProcessAt(at.Socket)
	if err != nil { // the process has just ended, and its socket no longer exists
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", quiesce.ErrAway, &target.DownError{Socket: at.Socket, Err: err})
	}
	return &directTarget{quiesce.Target{Caller: conn, Process: process, Release: conn.Release(), Close: conn.Close}, conn.Gone()}, nil
}

// Thaw makes one attempt to thaw the volumes of all operations in a journal that no running process
// is working on. It returns how many operations remain. dir is the journal's directory.
func Thaw(ctx context.Context, dir string, log *slog.Logger) (left int, err error) {
	folder, err := quiesce.FindFolder(dir)
	if err != nil {
		return 0, err
	}
	return quiesce.New(quiesce.Options{Folder: folder, Connect: (&connections{}).connect, Process: persist.ProcessAt, Log: log, Leave: true}).Recover(ctx), nil
}

// Recover makes one attempt to thaw volumes that an earlier process left frozen. It returns how
// many operations remain.
func (e *Executor) Recover(ctx context.Context) (left int) { return e.quiescer.Recover(ctx) }

// RecoverFrozen keeps trying to thaw volumes that an earlier process left frozen, until ctx ends.
func (e *Executor) RecoverFrozen(ctx context.Context) { e.quiescer.Run(ctx) }
