package persist

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// A NotSavedError means that a call was executed, but its change would be lost in a restart.
type NotSavedError struct{ Why error }

// Error omits reasons that contain file names, because tenants see the error. The log contains the
// reasons.
func (e *NotSavedError) Error() string {
	for _, known := range []error{errEnded, errChosen} {
		if errors.Is(e.Why, known) {
			return "the change is not saved: " + known.Error()
		}
	}
	return "the change is not saved: the proxy cannot save the target's configuration now"
}

func (e *NotSavedError) Unwrap() error { return e.Why }

var (
	errEnded  = errors.New("the target was restarted in the meantime")
	errChosen = errors.New("spdk_tgt has not yet loaded the configuration chosen by an administrator: restart it, or drop the choice (spdkgate_config_save with accept_loss)")
)

type attempt struct {
	number  uint64 // number of this attempt
	changes uint64 // number of changes that it tried to save
	err     error
}

// While calls wait for a save, the saver pauses after each read of the configuration for pauseShare
// times the duration of the read.
const pauseShare = 2

// pollTime is the approximate part of a read's duration during which the target does not work on
// the read, because it polls for requests only every 4 ms.
const pollTime = 50 * time.Millisecond

// AwaitSaved waits until the file that a restarted target would load contains all changes made so
// far. process must be the value returned by Before. Concurrent callers share a save. If the
// changes cannot be saved within Options.Wait, AwaitSaved returns a *NotSavedError.
func (s *Saver) AwaitSaved(ctx context.Context, process string) error {
	s.mu.Lock()
	number, earlier := s.changes, s.attempts
	s.mu.Unlock()
	// Other calls share this save, so it continues even if this call's client disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Wait)
	defer cancel()
	var done bool
	var failed error
	err := s.exclusively(ctx, func() error {
		if done, failed = s.savedBy(process, number, earlier); done || failed != nil {
			return nil
		}
		if err := s.pace(ctx); err != nil {
			return err
		}
		s.awaited = true
		defer func() { s.awaited = false }()
		if err := s.save(ctx, false); err != nil {
			return err
		}
		done, failed = s.savedBy(process, number, earlier)
		return nil
	})
	switch err = errors.Join(err, failed); {
	case done:
		return nil
	case err != nil:
		return &NotSavedError{err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.status.Chosen.IsZero() {
		return &NotSavedError{errChosen}
	}
	return &NotSavedError{errEnded}
}

// savedBy reports whether the changes up to this number have been saved. If not, it returns the
// error of the last attempt to save them, provided that the attempt's number exceeds earlier.
func (s *Saver) savedBy(process string, number, earlier uint64) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if saved, known := s.durable[process]; known && saved >= number {
		return true, nil
	}
	if s.attempt.err != nil && s.attempt.changes >= number && s.attempt.number > earlier {
		return false, s.attempt.err
	}
	return false, nil
}

// pace delays the next read so that reads take at most a third of the target's time.
func (s *Saver) pace(ctx context.Context) error {
	s.mu.Lock()
	until := s.readAt.Add(pauseShare * max(0, s.cost-pollTime))
	s.mu.Unlock()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxProcesses is the number of target processes for which the saver records saved changes.
const maxProcesses = 4

// noteDurable records how many changes the current file contains. The caller must hold s.mu.
func (s *Saver) noteDurable(process string, number uint64) {
	if _, known := s.durable[process]; !known && len(s.durable) == maxProcesses {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(s.durable)), func(a, b string) int {
			return int(min(max(int64(s.durable[a])-int64(s.durable[b]), -1), 1))
		})
		delete(s.durable, oldest)
	}
	s.durable[process] = number
}
