package persist

import (
	"errors"
	"slices"
	"time"
)

// An outcome is what a look at the target has led to.
type outcome struct {
	cost      time.Duration // of reading
	savedAt   time.Time     // of the current file
	missing   []Call        // of the current file, in the target
	unsettled bool          // it is to be seen whether the target lives on
	chosen    time.Time     // the current file was chosen, and awaits being loaded
}

// A suspect is a process that was seen to lack what no call took away.
type suspect struct {
	process string
	since   time.Time
}

var errNoProcess = errors.New("it cannot be told which process of the target answers")

// decide is the one place where it is decided what becomes of the files.
func (s *Saver) decide(live *Configuration, touched map[string]bool, acceptLoss bool) (outcome, error) {
	if live.Saved.Process == "" {
		return outcome{}, errNoProcess
	}
	current, err := s.usable()
	if err != nil {
		return outcome{}, err
	}
	if current != nil {
		awaits, err := s.awaitsLoad(current, live)
		switch {
		case err != nil:
			return outcome{}, err
		case awaits && acceptLoss:
			s.opts.Log.Warn("the choice of a saved configuration is dropped", "chosen", current.Saved.Chosen.At)
			return s.adopt(live, current, asideReplaced)
		case awaits:
			return s.await(live, current)
		}
	}
	if current == nil || current.calls() == 0 { // nothing, or what Prepare has made
		return s.adopt(live, current, "")
	}
	c := compare(s.opts.Schema, current, live)
	missing := c.missing(current, live)
	anotherProcess := current.Saved.Process != live.Saved.Process
	switch {
	case len(missing) == 0 && !c.sameRelease:
		return s.adopt(live, current, asideBefore)
	case len(missing) == 0:
		return s.adopt(live, current, "")
	case acceptLoss:
		s.opts.Log.Warn("what the target lacks of its saved configuration is given up", "missing", len(missing), "calls", described(missing, 10))
		return s.adopt(live, current, asideReplaced)
	case anotherProcess:
		return s.saveBeside(live, current, missing)
	}

	// The same process. What calls took away is gone for good.
	vanished := slices.DeleteFunc(slices.Clone(missing), func(m Call) bool { return m.names(touched) })
	if len(vanished) == 0 {
		return s.adopt(live, current, "")
	}
	if s.suspect.process != live.Saved.Process || s.suspect.since.IsZero() {
		s.suspect = suspect{live.Saved.Process, time.Now()}
	}
	if time.Since(s.suspect.since) < s.opts.Settle {
		return outcome{savedAt: current.Saved.Time, missing: missing, unsettled: true}, nil
	}
	s.opts.Log.Warn("parts of the target's configuration have vanished, and not by a call through this proxy", "missing", len(vanished), "calls", described(vanished, 10))
	return s.adopt(live, current, "")
}

// usable gives the current configuration. One that is damaged is set aside, and
// the last good one takes its place: spdk_tgt would not start with it.
func (s *Saver) usable() (*Configuration, error) {
	f := s.opts.Folder
	current, damaged, err := f.load(Current)
	if err != nil || damaged == nil {
		return current, err
	}
	good, err := f.lastGood()
	if err != nil {
		return nil, err
	}
	if good != nil {
		good.Saved.Chosen = nil // a choice of former times
	}
	s.opts.Log.Error("the saved configuration was damaged: it is set aside, and the last good one put in its place", "error", damaged, "found", good != nil)
	if good == nil {
		return nil, f.setAside(Current, asideDamaged)
	}
	return good, f.replace(good, asideDamaged)
}

// adopt makes what the target knows the current configuration. The former one
// stays among the former ones, or is set aside under a word.
func (s *Saver) adopt(live, current *Configuration, word string) (outcome, error) {
	f := s.opts.Folder
	s.suspect = suspect{}
	o := outcome{savedAt: live.Saved.Time}
	same := current != nil && compare(s.opts.Schema, current, live).same(current, live)
	switch {
	case same && current.Saved.Release == live.Saved.Release && current.Saved.Process == live.Saved.Process && current.Saved.Chosen == nil:
		o.savedAt = current.Saved.Time
	case same && word == "":
		if err := f.renew(live); err != nil {
			return outcome{}, err
		}
	default:
		if err := f.replace(live, word); err != nil {
			return outcome{}, err
		}
		s.opts.Log.Info("the target's configuration is saved", "file", s.status.File, "calls", live.calls())
	}
	return o, s.settleHeld(live)
}

// saveBeside leaves the current configuration alone, since this process of the
// target lacks some of it, and writes what it knows beside it.
func (s *Saver) saveBeside(live, current *Configuration, missing []Call) (outcome, error) {
	alreadyLogged, err := s.writeHeld(live, current)
	if err != nil {
		return outcome{}, err
	}
	if !alreadyLogged {
		s.opts.Log.Error("the target was started without some of its saved configuration, which stays saved: bring back disks that are missing, restart spdk_tgt with the saved file (-c), or accept the loss (spdkgate_config_save with accept_loss)",
			"file", s.status.File, "missing", len(missing), "calls", described(missing, 10), "held", s.status.Held)
	}
	return outcome{savedAt: current.Saved.Time, missing: missing}, nil
}

// writeHeld writes what the target knows beside the current configuration. alreadyLogged:
// that was done before for this process.
func (s *Saver) writeHeld(live, current *Configuration) (alreadyLogged bool, err error) {
	f := s.opts.Folder
	held, damaged, err := f.load(Held)
	if err != nil {
		return false, err
	}
	alreadyLogged = held != nil && held.Saved.Process == live.Saved.Process
	if !alreadyLogged && (damaged != nil || held != nil && !s.covered(held, current)) {
		// Of one more process, and it knew what the saved one does not.
		if err := f.setAside(Held, asideHeld); err != nil {
			return false, err
		}
	}
	if !alreadyLogged || !compare(s.opts.Schema, held, live).same(held, live) {
		return alreadyLogged, f.hold(live)
	}
	return alreadyLogged, nil
}

// settleHeld ends keeping back. What was kept back is set aside if it has what
// the target lacks.
func (s *Saver) settleHeld(live *Configuration) error {
	f := s.opts.Folder
	held, damaged, err := f.load(Held)
	if err != nil || held == nil && damaged == nil {
		return err
	}
	if damaged == nil && (held.Saved.Process == live.Saved.Process || s.covered(held, live)) {
		return f.drop(Held)
	}
	return f.setAside(Held, asideHeld)
}

// covered says whether b has all that a has.
func (s *Saver) covered(a, b *Configuration) bool {
	return len(compare(s.opts.Schema, a, b).missing(a, b)) == 0
}
