package persist

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Options of a Saver. What is zero takes its default, where one is named.
type Options struct {
	Folder *Folder
	Schema *rpcschema.Document
	// Target finds the target as it is now.
	Target func(ctx context.Context) (Target, error)
	// Process names the process behind the socket; it costs a system call.
	Process func() (string, error)
	Log     *slog.Logger

	After    time.Duration // how long to wait for further changes; 0: 2 s
	AtLatest time.Duration // how long to wait at most; 0: 15 s
	Retry    time.Duration // how long to wait after a failure, at first; 0: 1 s
	Watch    time.Duration // how often to look for a new process; 0: 5 s
	// Settle is how long a target must live on after it was seen to lack what no
	// call took away: it could be stopping, and answer meanwhile. 0: 100 s, longer
	// than systemd lets a unit take to stop.
	Settle time.Duration
}

const (
	readWithin    = 2 * time.Minute  // the whole configuration
	compareWithin = 10 * time.Second // while a call waits
)

// A Saver saves the configuration of one target after it was changed.
type Saver struct {
	opts Options
	wake chan struct{}

	// The process whose configuration was compared with the saved one.
	comparedProcess atomic.Pointer[string]
	backoff         atomic.Pointer[backoff] // nil: no comparison has failed

	exclusive chan struct{} // holds one while somebody looks at target and folder
	suspect   suspect

	changesWait atomic.Pointer[chan struct{}] // nil: they need not; see holdChanges

	mu      sync.Mutex
	status  Status
	err     error           // of the last attempt
	changes uint64          // so far
	saved   uint64          // those that a save has seen
	touched map[string]bool // what those named that no save has seen
	first   time.Time       // change that no save has seen
	last    time.Time
	cost    time.Duration // of the last reading
}

// New makes a Saver. Nothing is done before Run.
func New(o Options) *Saver {
	o.After = defaulted(o.After, 2*time.Second)
	o.AtLatest = max(defaulted(o.AtLatest, 15*time.Second), o.After)
	o.Retry = defaulted(o.Retry, time.Second)
	o.Watch = defaulted(o.Watch, 5*time.Second)
	o.Settle = defaulted(o.Settle, 100*time.Second)
	return &Saver{
		opts: o, wake: make(chan struct{}, 1), exclusive: make(chan struct{}, 1), touched: map[string]bool{},
		status: Status{File: filepath.Join(o.Folder.path, Current), Held: filepath.Join(o.Folder.path, Held)},
	}
}

func defaulted(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// Before is called before a call that changes the target is made. The first one
// to a new process waits until what that process knows was compared with what is
// saved: afterwards nobody could tell what it has lost from what it was told to
// remove. If that fails the call goes on: the comparison then comes later, and
// may find more to be missing.
func (s *Saver) Before(ctx context.Context) {
	s.awaitReading(ctx)
	if s.processCompared() || s.backsOff() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	process, _ := s.opts.Process() // "": it is away, and the next one is compared at once
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

// A backoff says until when no call compares a process after a comparison failed.
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

// exclusively lets one at a time look at target and folder.
func (s *Saver) exclusively(ctx context.Context, look func() error) error {
	select {
	case s.exclusive <- struct{}{}:
		defer func() { <-s.exclusive }()
		return look()
	case <-ctx.Done():
		return fmt.Errorf("another save is under way: %w", ctx.Err())
	}
}

func (s *Saver) processCompared() bool {
	process, err := s.opts.Process()
	met := s.comparedProcess.Load()
	return err == nil && met != nil && *met == process
}

// maxTouched bounds what is remembered of changes between two saves. What was
// forgotten only makes the saver more careful.
const maxTouched = 10000

// Changed says that the target was changed, or may have been, by a call with
// these parameters.
func (s *Saver) Changed(method string, params map[string]any) {
	names, _ := s.opts.Schema.Names(method, params, maxNames)
	s.mu.Lock()
	now := time.Now()
	if s.changes == s.saved {
		s.first = now
	}
	s.changes++
	s.last = now
	for _, n := range names {
		if len(s.touched) < maxTouched {
			s.touched[n.Value] = true
		}
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Save saves now. With acceptLoss, what the target lacks of the saved configuration is
// given up: the file that has it is set aside.
func (s *Saver) Save(ctx context.Context, acceptLoss bool) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	return s.exclusively(ctx, func() error { return s.save(ctx, acceptLoss) })
}

// save looks, decides, and notes how it went. One at a time may.
func (s *Saver) save(ctx context.Context, acceptLoss bool) error {
	s.mu.Lock()
	seen, touched := s.changes, s.touched
	s.touched = map[string]bool{}
	s.mu.Unlock()

	o, err := s.readAndDecide(ctx, touched, acceptLoss)

	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || o.unsettled {
		for name := range touched {
			s.touched[name] = true
		}
	}
	var away *awayError
	if errors.As(err, &away) && s.changes == s.saved {
		// Nothing is lost with a target that ends: all of it is saved.
		s.err = nil
		return err
	}
	s.logFailure(err)
	s.err = err
	if err != nil {
		return err
	}
	s.cost = o.cost
	s.status.SavedAt, s.status.Missing, s.status.Unsettled = o.savedAt, o.missing, o.unsettled
	s.noteChosen(o.chosen)
	if !o.unsettled {
		s.saved, s.first = seen, s.last
	}
	return nil
}

// logFailure logs an error once, and its end.
func (s *Saver) logFailure(err error) {
	switch {
	case err == nil && s.err != nil:
		s.opts.Log.Info("the target's configuration can be saved again", "file", s.status.File)
	case err != nil && (s.err == nil || s.err.Error() != err.Error()):
		s.opts.Log.Warn("the target's configuration cannot be saved: the old file stays", "file", s.status.File, "error", err)
	}
}

// An awayError means that there is no target that could tell its configuration.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }

func (e *awayError) Unwrap() error { return e.err }

// look reads the target's configuration and has it decided what becomes of it.
func (s *Saver) readAndDecide(ctx context.Context, touched map[string]bool, acceptLoss bool) (outcome, error) {
	t, err := s.opts.Target(ctx)
	if err != nil {
		return outcome{}, &awayError{err}
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
	unlock, err := s.opts.Folder.disk.lock()
	if err != nil {
		return outcome{}, err
	}
	defer unlock()
	o, err := s.decide(live, touched, acceptLoss)
	if err != nil {
		return outcome{}, err
	}
	o.cost = cost
	s.comparedProcess.Store(&live.Saved.Process)
	return o, nil
}
