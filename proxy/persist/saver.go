package persist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist/identity"
	"github.com/spdkgate/spdkgate/rpcschema"
)

// Options configures a Saver. A zero duration selects the default.
type Options struct {
	Folder *Folder
	Schema *rpcschema.Document
	// Target connects to the target's running process.
	Target func(ctx context.Context) (Target, error)
	// Process returns the name of the process behind the socket; see ProcessAt.
	Process func() (string, error)
	Log     *slog.Logger
	// DisableAutoExamine makes the saved configuration disable bdev_auto_examine, so that the
	// target does not load lvstores and RAIDs that hosts write to their volumes.
	DisableAutoExamine bool

	After    time.Duration // wait for further changes; 0 selects 2 s
	AtLatest time.Duration // maximum wait before a save; 0 selects 15 s
	Retry    time.Duration // wait after the first failure; 0 selects 1 s
	Watch    time.Duration // interval of checks for a new process; 0 selects 5 s
	Wait     time.Duration // maximum wait of AwaitSaved; 0 selects 10 s
	// Settle applies if parts of the target's configuration disappear without a call through this
	// proxy. They count as removed only after the target has kept running for this time, because a
	// stopping target may still respond. 0 selects 100 s, longer than systemd's default stop
	// timeout.
	Settle time.Duration
}

const (
	readTimeout    = 2 * time.Minute  // for the whole configuration
	compareTimeout = 10 * time.Second // while a call is waiting
)

// A Saver saves one target's configuration after each change.
type Saver struct {
	opts Options
	wake chan struct{}

	// comparedProcess is the process with the configuration that was compared with the saved one.
	comparedProcess atomic.Pointer[string]
	backoff         atomic.Pointer[backoff] // nil if no comparison has failed

	exclusive chan struct{} // contains an element while the target or the directory is in use
	suspect   suspect
	choice    choiceReader
	removing  removing

	changesWait atomic.Pointer[chan struct{}] // nil if changes need not wait; see hold
	firstWait   atomic.Pointer[chan struct{}] // the same for calls that wait for their save
	awaited     bool                          // whether a call awaits the save; guarded by exclusive

	mu        sync.Mutex
	decidedOn time.Time // the choice of the current file that the last save took into account
	status    Status
	err       error             // error of the last attempt
	changes   uint64            // number of changes so far
	saved     uint64            // number of saved changes
	since     changes           // the unsaved changes
	durable   map[string]uint64 // number of changes in the current file, by target process
	attempt   attempt           // the last attempt to save
	attempts  uint64            // number of attempts begun
	first     time.Time         // time of the first unsaved change
	last      time.Time         // time of the last change
	cost      time.Duration     // duration of the last read
	readAt    time.Time         // end of the last read
}

// New returns a Saver, which does nothing until Run, Save or Before is called.
func New(o Options) *Saver {
	o.After = cmp.Or(o.After, 2*time.Second)
	o.AtLatest = max(cmp.Or(o.AtLatest, 15*time.Second), o.After)
	o.Retry = cmp.Or(o.Retry, time.Second)
	o.Watch = cmp.Or(o.Watch, 5*time.Second)
	o.Wait = cmp.Or(o.Wait, 10*time.Second)
	o.Settle = cmp.Or(o.Settle, 100*time.Second)
	return &Saver{
		opts: o, wake: make(chan struct{}, 1), exclusive: make(chan struct{}, 1), since: newChanges(), durable: map[string]uint64{}, removing: removing{folder: o.Folder},
		status: Status{File: filepath.Join(o.Folder.path, Current), Held: filepath.Join(o.Folder.path, Held)},
	}
}

// Before compares the configuration of a new target process with the saved one. It must be called
// before each call that changes the target, because after the first change, the saver could not
// distinguish lost objects from objects removed by the call. If the comparison fails, Before
// returns anyway, and a later comparison may find more calls missing.
//
// Before returns the name of the process to which the call will be sent, or of an earlier process;
// see AwaitSaved. first must be set if the caller will wait for the save.
func (s *Saver) Before(ctx context.Context, first bool) (process string) {
	process, _ = s.opts.Process()
	if first {
		awaitReading(ctx, &s.firstWait)
	}
	s.compareFirst(ctx)
	return process
}

func (s *Saver) compareFirst(ctx context.Context) {
	awaitReading(ctx, &s.changesWait)
	if s.processCompared() || s.backsOff() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	process, _ := s.opts.Process() // "" if no process is running: the next one is compared immediately
	err := s.exclusively(ctx, func() error {
		if s.processCompared() || s.backsOff() {
			return nil
		}
		return s.save(ctx, false)
	})
	if err != nil {
		s.backoff.Store(&backoff{process, time.Now().Add(s.opts.Retry)})
	}
}

// A backoff controls how long calls skip the comparison after it has failed.
type backoff struct {
	process string
	until   time.Time
}

func (s *Saver) backsOff() bool {
	b := s.backoff.Load()
	if b == nil || time.Now().After(b.until) {
		return false
	}
	process, _ := s.opts.Process()
	return process == b.process
}

// exclusively calls do while no other goroutine uses the target or the directory.
func (s *Saver) exclusively(ctx context.Context, do func() error) error {
	select {
	case s.exclusive <- struct{}{}:
		defer func() { <-s.exclusive }()
		return do()
	case <-ctx.Done():
		return fmt.Errorf("another save is running: %w", ctx.Err())
	}
}

func (s *Saver) processCompared() bool {
	process, err := s.opts.Process()
	compared := s.comparedProcess.Load()
	return err == nil && compared != nil && *compared == process
}

// Changed reports a call that has ended and may have changed the target, so that Run saves soon.
func (s *Saver) Changed(method string, params map[string]any) {
	names, _ := s.opts.Schema.Names(method, params, maxNames)
	m, _ := s.opts.Schema.Method(method)
	others := s.removing.namesOf(names)
	object := identity.Of(s.opts.Schema, method, params)
	s.changed(func(since *changes) {
		since.note(m, names, params, others)
		since.markMade(object)
	})
}

func (s *Saver) changed(note func(since *changes)) {
	s.mu.Lock()
	now := time.Now()
	if s.changes == s.saved {
		s.first = now
	}
	s.changes++
	s.last = now
	note(&s.since)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Save saves the target's configuration immediately. If acceptLoss is set, it replaces the saved
// configuration even if the target lacks parts of it, and sets the old file aside.
func (s *Saver) Save(ctx context.Context, acceptLoss bool) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return s.exclusively(ctx, func() error { return s.save(ctx, acceptLoss) })
}

// save reads the configuration, calls decide, and records the outcome. The caller must hold
// s.exclusive.
func (s *Saver) save(ctx context.Context, acceptLoss bool) error {
	s.mu.Lock()
	number, seen := s.changes, s.since
	s.attempts++
	this := s.attempts
	s.since = newChanges()
	s.mu.Unlock()

	chosen, _ := s.choice.read(s.opts.Folder)
	o, err := s.readAndDecide(ctx, seen, acceptLoss)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempt = attempt{this, number, err}
	if err != nil {
		s.since.add(seen)
	}
	var away *awayError
	if errors.As(err, &away) && s.changes == s.saved {
		// The target is not running, and there are no unsaved changes.
		s.err = nil
		return err
	}
	s.logFailure(err)
	s.err = err
	if err != nil {
		return err
	}
	s.cost, s.readAt = o.cost, time.Now()
	s.noteUnrestorable(o.lost)
	s.status.SavedAt, s.status.Missing, s.status.MissingISCSI, s.status.Unsettled = o.savedAt, o.missing, o.iscsi, o.unsettled
	s.noteChosen(o.chosen)
	s.decidedOn = chosen
	s.saved, s.first = number, s.last
	if o.chosen.IsZero() {
		s.noteDurable(o.process, number)
	}
	return nil
}

// logFailure logs an error when it first occurs, and logs the first success after it.
func (s *Saver) logFailure(err error) {
	switch {
	case err == nil && s.err != nil:
		s.opts.Log.Info("target configuration can be saved again", "file", s.status.File)
	case err != nil && (s.err == nil || s.err.Error() != err.Error()):
		s.opts.Log.Warn("cannot save the target configuration", "file", s.status.File, "error", err)
	}
}

// An awayError means that the target is not running or is unreachable.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }

func (e *awayError) Unwrap() error { return e.err }

// readAndDecide reads the target's configuration and calls decide.
func (s *Saver) readAndDecide(ctx context.Context, seen changes, acceptLoss bool) (outcome, error) {
	t, err := s.opts.Target(ctx)
	if err != nil {
		return outcome{}, &awayError{err}
	}
	deletions, err := s.removing.known()
	if err != nil {
		return outcome{}, err
	}
	began := time.Now()
	live, err := s.readSteady(ctx, t)
	if err != nil {
		if process, gone := s.opts.Process(); gone != nil || process != t.Process {
			err = &awayError{err}
		}
		return outcome{}, err
	}
	cost := time.Since(began)
	lost, err := live.unrestorable(ctx, t.Ask)
	if err != nil {
		return outcome{}, err
	}
	unlock, err := s.opts.Folder.disk.Lock()
	if err != nil {
		return outcome{}, err
	}
	defer unlock()
	removals, settled := settle(ctx, t, deletions)
	seen.removals = append(slices.Clone(seen.removals), removals...)
	o, err := s.decide(live, seen, acceptLoss)
	if err != nil {
		return outcome{}, err
	}
	// A process that still responds was running when the file was written, so the next one loads
	// this file.
	if _, err := t.Ask(ctx, "spdk_get_version", nil); err != nil {
		return outcome{}, &awayError{fmt.Errorf("the target may have restarted with the previous file: %w", err)}
	}
	o.cost, o.process, o.lost = cost, live.Saved.Process, lost
	if err := s.removing.forget(settled); err != nil {
		return outcome{}, err
	}
	s.comparedProcess.Store(&live.Saved.Process)
	return o, nil
}
