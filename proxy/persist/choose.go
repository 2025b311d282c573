package persist

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Choice marks a saved configuration that an administrator has chosen for the target's next start
// (see Folder.Use). The chosen file stays current until a target process has loaded it.
type Choice struct {
	At time.Time `json:"at"`
	// Replaced is the name of the file with the previous configuration, or "" if there was none.
	// Process is the target process with that configuration.
	Replaced string `json:"replaced,omitempty"`
	Process  string `json:"process,omitempty"`
}

// Use makes a file current for the target's next start, and sets the previous file aside.
func (f *Folder) Use(name string) error {
	unlock, err := f.disk.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	c, err := f.get(name)
	if err != nil {
		return err
	}
	previous, damaged, err := f.load(Current)
	if err != nil {
		return err
	}
	reason := asideReplaced
	if damaged != nil {
		reason = asideDamaged
	}
	if c.Saved.Chosen, err = newChoice(previous); err != nil {
		return err
	}
	if c.Saved.Chosen.Replaced, err = f.keepCopy(Current, reason); err != nil {
		return err
	}
	if err := f.renew(c); err != nil {
		return err
	}
	return f.prune()
}

// A choiceReader determines whether an administrator has chosen the current file. Administrators
// use another process to choose files, so the reader reads the file again after each replacement.
type choiceReader struct {
	mu            sync.Mutex
	file          fs.FileInfo // nil if there is none
	chosen, saved time.Time
}

// read returns when the current file was chosen, and when its configuration was saved. Both times
// are zero if the file was not chosen or cannot be read.
func (r *choiceReader) read(f *Folder) (chosen, saved time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	file, err := os.Stat(filepath.Join(f.path, Current))
	if err != nil {
		r.file = nil
		return time.Time{}, time.Time{}
	}
	if r.file != nil && os.SameFile(file, r.file) && file.ModTime().Equal(r.file.ModTime()) {
		return r.chosen, r.saved
	}
	r.file, r.chosen, r.saved = file, time.Time{}, time.Time{}
	if c, _, err := f.load(Current); err == nil && c != nil && c.Saved.Chosen != nil {
		r.chosen, r.saved = c.Saved.Chosen.At, c.Saved.Time
	}
	return r.chosen, r.saved
}

// newChoice returns a Choice with the current time. It takes the time from the file system's clock,
// so that it can be compared with the time of the target's socket.
func newChoice(previous *Configuration) (*Choice, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	c := &Choice{At: time.Unix(now.Unix()).UTC()}
	switch {
	case previous == nil:
	case previous.Saved.Chosen != nil: // the previous choice was not loaded either
		c.Process = previous.Saved.Chosen.Process
	default:
		c.Process = previous.Saved.Process
	}
	return c, nil
}

// awaitsLoad reports whether an administrator chose the current configuration, but the running
// target process has not loaded it. This is the case if the previous configuration came from this
// process, if the process started before the choice, or if it was starting during the choice and
// had already read the replaced file.
func (s *Saver) awaitsLoad(current, live *Configuration) (bool, error) {
	choice := current.Saved.Chosen
	if choice == nil {
		return false, nil
	}
	if live.Saved.Process == choice.Process {
		return true, nil
	}
	if started, known := startOf(live.Saved.Process); known && started.Before(choice.At) {
		return true, nil
	}
	if choice.Replaced == "" || compare(s.opts.Schema, current, live).same(current, live) {
		return false, nil
	}
	replaced, _, err := s.opts.Folder.load(choice.Replaced)
	if err != nil || replaced == nil {
		return false, err
	}
	return compare(s.opts.Schema, replaced, live).same(replaced, live), nil
}

// startOf returns when a process created its socket; see ProcessAt.
func startOf(process string) (at time.Time, known bool) {
	text := process[strings.LastIndexByte(process, '-')+1:]
	seconds, nanos, ok := strings.Cut(text, ".")
	sec, err := strconv.ParseInt(seconds, 10, 64)
	if !ok || err != nil {
		return time.Time{}, false
	}
	ns, err := strconv.ParseInt(nanos, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	return time.Unix(sec, ns), true
}

// keepChosen keeps a chosen configuration that the target has not loaded, and writes the target's
// own configuration to the file Held.
func (s *Saver) keepChosen(live, current *Configuration) (outcome, error) {
	if _, err := s.writeHeld(live, current); err != nil {
		return outcome{}, err
	}
	return outcome{savedAt: current.Saved.Time, chosen: current.Saved.Chosen.At}, nil
}

// noteChosen logs, once for each choice, that the target has not loaded the chosen file yet. The
// caller must hold s.mu.
func (s *Saver) noteChosen(at time.Time) {
	if !at.IsZero() && !at.Equal(s.status.Chosen) {
		s.opts.Log.Warn("the chosen configuration has not been loaded yet; changes are saved to another file", "file", s.status.File, "chosen", at, "held", s.status.Held,
			"do", "restart spdk_tgt to load it, or drop the choice (spdkgate_config_save with accept_loss)")
	}
	s.status.Chosen = at
}
