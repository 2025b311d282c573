package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist"
)

const (
	lastSave   = 5 * time.Second // for what is unsaved when the proxy stops
	sweepEvery = time.Hour
)

// targetNow is the target as the saver sees it: one process. The connection comes
// first: if the process behind it is replaced before it is named, the connection
// is dead, and nothing is told under the wrong name.
func (s *Server) targetNow(ctx context.Context) (persist.Target, error) {
	conn, err := s.target.Connect(ctx, "")
	if err != nil {
		return persist.Target{}, err
	}
	process, err := persist.ProcessAt(s.config.Target.Socket)
	if err != nil {
		return persist.Target{}, err
	}
	return persist.Target{Process: process, Release: conn.Release(), Ask: rawCaller(conn, "", s.settings.Load())}, nil
}

// startSaving saves after changes, and sweeps keys, until stopSaving.
func (s *Server) startSaving() {
	if s.restart.saver == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.restart.saver.Run(ctx, lastSave) })
	if s.restart.keys != nil {
		running.Go(func() { s.sweepKeys(ctx) })
	}
	s.restart.stop = func() { cancel(); running.Wait() }
}

// stopSaving saves what is unsaved. The target must still be connected.
func (s *Server) stopSaving() { s.restart.stopOnce.Do(s.restart.stop) }

// sweepKeys removes files of keys that nothing needs, while it is sure what is
// needed: when the target has all that is saved, and nothing else was chosen.
func (s *Server) sweepKeys(ctx context.Context) {
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if now := s.restart.saver.Status(); now.SavedAt.IsZero() || now.Pending || now.Failed || len(now.Missing) > 0 || !now.Chosen.IsZero() {
			continue
		}
		t, err := s.targetNow(ctx)
		if err != nil {
			continue // the next time, then
		}
		removed, err := s.restart.keys.Sweep(ctx, t.Ask, s.restart.folder.Mentions)
		if err != nil {
			s.log.Warn("files of keys are not swept", "error", err)
		}
		if len(removed) > 0 {
			s.log.Info("files of keys that nothing needed are removed", "keys", removed)
		}
	}
}
