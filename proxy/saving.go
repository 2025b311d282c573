package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist"
)

const (
	finalSaveTimeout = 5 * time.Second // when the proxy stops
	sweepInterval    = time.Hour
)

// targetNow returns the running process of the target, for the saver. It connects first: if
// the process is replaced before ProcessAt names it, the connection is dead, and so no
// configuration is attributed to the wrong process.
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

// startSaving saves the configuration after changes, and sweeps keys, until stopSaving.
func (s *Server) startSaving() {
	if s.restart.saver == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.restart.saver.Run(ctx, finalSaveTimeout) })
	if s.restart.keys != nil {
		running.Go(func() { s.sweepKeys(ctx) })
	}
	s.restart.stop = func() { cancel(); running.Wait() }
}

// stopSaving saves unsaved changes and ends startSaving's work. The target must still be
// connected.
func (s *Server) stopSaving() { s.restart.stopOnce.Do(s.restart.stop) }

// sweepKeys removes unused key files every sweepInterval. It does so only while it is certain
// which are used: when the target has everything that is saved, and no other file was chosen.
func (s *Server) sweepKeys(ctx context.Context) {
	every := time.NewTicker(sweepInterval)
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
			continue // try again after the interval
		}
		removed, err := s.restart.keys.Sweep(ctx, t.Ask, s.restart.folder.Mentions)
		if err != nil {
			s.log.Warn("cannot remove unused key files; retrying in an hour", "error", err)
		}
		if len(removed) > 0 {
			s.log.Info("unused key files removed", "keys", removed)
		}
	}
}
