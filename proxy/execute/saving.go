package execute

import (
	"context"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	finalSaveTimeout = 5 * time.Second // for the last save, when the proxy stops
	sweepInterval    = time.Hour
)

// targetNow returns the target's running process, for the saver. It connects before it identifies
// the process, so that the connection is already dead if the process was replaced in between.
// Therefore, a configuration is never attributed to the wrong process.
func (e *Executor) targetNow(ctx context.Context) (persist.Target, error) {
	conn, err := e.Target.Connect(ctx, "")
	if err != nil {
		return persist.Target{}, err
	}
	process, err := persist.ProcessAt(e.Config.Target.Socket)
	if err != nil {
		return persist.Target{}, err
	}
	return persist.Target{Process: process, Release: conn.Release(), Ask: Command{Conn: conn, Timeout: e.Timeout}.Ask}, nil
}

// StartSaving starts two background tasks, which run until StopSaving: one saves the configuration
// after changes, and the other removes unused key files.
func (e *Executor) StartSaving() {
	if e.restart.saver == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.restart.saver.Run(ctx, finalSaveTimeout) })
	if e.restart.keys != nil {
		running.Go(func() { e.sweepKeysRegularly(ctx) })
	}
	e.restart.stop = func() { cancel(); running.Wait() }
}

// StopSaving saves any unsaved changes, and ends the tasks that StartSaving began. The proxy must
// still be connected to the target.
func (e *Executor) StopSaving() { e.restart.stopOnce.Do(e.restart.stop) }

// sweepKeysRegularly removes unused key files every sweepInterval.
func (e *Executor) sweepKeysRegularly(ctx context.Context) {
	every := time.NewTicker(sweepInterval)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
			e.SweepKeys(ctx)
		}
	}
}

// If the configuration is saved, checkSaveable refuses to create a second NVMe-oF target in an SPDK
// process. SPDK reports only the transports and subsystems of the first NVMe-oF target, so a
// restart would lose those of the second.
func (e *Executor) checkSaveable(c Command) error {
	if e.restart.saver == nil || c.Method.Name != "nvmf_create_target" {
		return nil
	}
	return &spdkrpc.Error{Method: c.Method.Name, Kind: spdkrpc.InvalidParams, Code: jsonrpc.CodeInvalidParams,
		Message: "Invalid argument: SPDK does not save the transports and subsystems of a second NVMe-oF target, so a restart would lose them (target.save). Nothing was executed. Create subsystems on the target that SPDK has; several listeners and subsystems separate hosts"}
}

// SweepKeys removes unused key files, provided that it can determine which files are in use. If the
// target is unreachable, it does nothing.
func (e *Executor) SweepKeys(ctx context.Context) {
	if !everythingSaved(e.restart.saver.Status()) {
		return
	}
	t, err := e.targetNow(ctx)
	if err != nil {
		return
	}
	removed, err := e.restart.keys.Sweep(ctx, t.Ask, e.restart.folder.Mentions)
	if err != nil {
		e.Log.Warn("cannot remove unused key files; retrying in an hour", "error", err)
	}
	if len(removed) > 0 {
		e.Log.Info("unused key files removed", "keys", removed)
	}
}

// everythingSaved reports whether the target contains all objects in the saved file, and no
// administrator has chosen another saved file.
func everythingSaved(now persist.Status) bool {
	return !now.SavedAt.IsZero() && !now.Pending && !now.Failed && len(now.Missing) == 0 && now.Chosen.IsZero()
}
