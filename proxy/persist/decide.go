package persist

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist/initiators"
	"github.com/spdkgate/spdkgate/proxy/persist/raids"
)

type outcome struct {
	cost      time.Duration       // duration of the read
	process   string              // target process whose configuration was read
	savedAt   time.Time           // modification time of the current file
	missing   []Call              // calls in the current file that the target lacks
	iscsi     []initiators.Export // see Status.MissingISCSI
	unsettled bool                // whether the target may be stopping; see Options.Settle
	chosen    time.Time           // when the current file was chosen, unless it has been loaded
	lost      []raids.Lost        // see Status.NotRestorable
}

// A suspect is a target process that lacks saved calls, although no call through this proxy removed
// them. The process may be stopping.
type suspect struct {
	process string
	since   time.Time
}

var errNoProcess = errors.New("cannot determine which process of the target responds")

// decide determines whether the running target's configuration, live, replaces the current file,
// and writes the files. No other function decides which configuration becomes current.
func (s *Saver) decide(live *Configuration, seen changes, acceptLoss bool) (outcome, error) {
	if live.Saved.Process == "" {
		return outcome{}, errNoProcess
	}
	current, err := s.loadCurrent()
	if err != nil {
		return outcome{}, err
	}
	if current != nil {
		awaits, err := s.awaitsLoad(current, live)
		switch {
		case err != nil:
			return outcome{}, err
		case awaits && acceptLoss:
			s.opts.Log.Warn("chosen configuration dropped", "chosen", current.Saved.Chosen.At)
			return s.adopt(live, current, asideReplaced)
		case awaits:
			return s.keepChosen(live, current)
		}
	}
	if current == nil || current.calls() == 0 { // no file, or the empty file created by Prepare
		return s.adopt(live, current, "")
	}
	c := compare(s.opts.Schema, current, live)
	missing := c.without(places(current), places(live))
	reason := ""
	if !c.sameRelease {
		reason = asideBefore
	}
	if len(missing) == 0 {
		return s.adopt(live, current, reason)
	}
	l := s.sort(current, live, missing, seen)
	if lost := c.describeAll(append(l.kept, l.vanished...)); acceptLoss {
		s.opts.Log.Warn("loss of saved configuration accepted", "missing", len(lost), "calls", firstCalls(lost, 10))
		return s.adopt(live, current, asideReplaced)
	}
	unsettled := false
	if len(l.vanished) == 0 {
		s.suspect = suspect{}
	} else {
		if s.suspect.process != live.Saved.Process || s.suspect.since.IsZero() {
			s.suspect = suspect{live.Saved.Process, time.Now()}
		}
		if unsettled = time.Since(s.suspect.since) < s.opts.Settle; !unsettled {
			s.opts.Log.Warn("parts of the target's configuration were removed without a call through this proxy", "missing", len(l.vanished), "calls", firstCalls(c.describeAll(l.vanished), 10))
			s.suspect, l.vanished = suspect{}, nil
		}
	}
	if len(l.kept)+len(l.vanished) == 0 {
		return s.adopt(live, current, reason)
	}
	o, err := s.saveBeside(live, current, l, seen, reason)
	o.unsettled = unsettled
	return o, err
}

// loadCurrent returns the current configuration. If the file is too damaged for spdk_tgt to load,
// loadCurrent sets it aside, and makes the newest readable previous version current.
func (s *Saver) loadCurrent() (*Configuration, error) {
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
		good.Saved.Chosen = nil // that choice was for an earlier start
	}
	s.opts.Log.Error("the saved configuration is damaged: replacing it with the last good version", "error", damaged, "found", good != nil)
	if good == nil {
		return nil, f.setAside(Current, asideDamaged)
	}
	return good, f.replace(good, asideDamaged)
}

// adopt makes live the current configuration. It keeps the old configuration as a previous version
// or, if reason is not "", sets it aside.
func (s *Saver) adopt(live, current *Configuration, reason string) (outcome, error) {
	f := s.opts.Folder
	s.suspect = suspect{}
	o := outcome{savedAt: live.Saved.Time}
	same := current != nil && compare(s.opts.Schema, current, live).same(current, live)
	switch {
	case same && current.Saved.Release == live.Saved.Release && current.Saved.Process == live.Saved.Process && current.Saved.Chosen == nil:
		o.savedAt = current.Saved.Time
	case same && reason == "":
		if err := f.renew(live); err != nil {
			return outcome{}, err
		}
	default:
		if err := f.replace(live, reason); err != nil {
			return outcome{}, err
		}
		s.opts.Log.Info("target configuration saved", "file", s.status.File, "calls", live.calls())
	}
	return o, s.settleHeld(live)
}

// saveBeside makes live, together with the calls that the target lacks, the current configuration.
// If these calls come from another process, saveBeside also saves the target's own configuration to
// Held.
func (s *Saver) saveBeside(live, current *Configuration, l lacking, seen changes, reason string) (outcome, error) {
	c := compare(s.opts.Schema, current, live)
	all := append(slices.Clone(l.kept), l.vanished...)
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.subsystem, b.subsystem), cmp.Compare(a.index, b.index))
	})
	merged, kept := s.keep(current, live, all, seen)
	for _, p := range l.vanished { // these calls are dropped unless their objects reappear soon
		delete(merged.Saved.Kept, digest(p.call))
	}
	if len(kept) == 0 {
		return s.adopt(live, current, reason)
	}
	o := outcome{savedAt: current.Saved.Time, missing: c.describeAll(kept)}
	o.iscsi = initiators.Exports(kept, places(merged), func(p place) json.RawMessage { return p.call })
	switch {
	case !c.same(current, merged):
		if err := s.opts.Folder.replace(merged, reason); err != nil {
			return outcome{}, err
		}
		o.savedAt = merged.Saved.Time
		s.opts.Log.Info("target configuration saved", "file", s.status.File, "calls", merged.calls())
	case current.Saved.Process == live.Saved.Process && !maps.Equal(current.Saved.Kept, merged.Saved.Kept):
		if err := s.opts.Folder.renew(merged); err != nil {
			return outcome{}, err
		}
	}
	if len(l.kept) == 0 {
		return o, s.settleHeld(merged)
	}
	alreadyLogged, err := s.writeHeld(live, merged)
	if err != nil {
		return outcome{}, err
	}
	if !alreadyLogged {
		s.opts.Log.Error("the target lacks parts of its saved configuration; they stay in the saved file", "file", s.status.File, "missing", len(kept), "calls", firstCalls(o.missing, 10), "held", s.status.Held,
			"do", "reattach missing disks, restart spdk_tgt with the saved file (-c), or accept the loss (spdkgate_config_save with accept_loss)")
	}
	return o, nil
}

// writeHeld saves the configuration of a target that lacks parts of current to the file Held.
// alreadyLogged means that an earlier call has logged the missing objects of this process.
func (s *Saver) writeHeld(live, current *Configuration) (alreadyLogged bool, err error) {
	f := s.opts.Folder
	held, damaged, err := f.load(Held)
	if err != nil {
		return false, err
	}
	alreadyLogged = held != nil && held.Saved.Process == live.Saved.Process
	if !alreadyLogged && (damaged != nil || held != nil && !s.covered(held, current)) {
		// The file Held comes from another process, and contains calls that this process lacks.
		if err := f.setAside(Held, asideHeld); err != nil {
			return false, err
		}
	}
	if !alreadyLogged || !compare(s.opts.Schema, held, live).same(held, live) {
		return alreadyLogged, f.hold(live)
	}
	return alreadyLogged, nil
}

// settleHeld removes Held after live has become the current configuration. If Held contains calls
// that the target lacks, settleHeld sets it aside instead.
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

// covered reports whether b contains all calls of a.
func (s *Saver) covered(a, b *Configuration) bool {
	return len(compare(s.opts.Schema, a, b).missing(a, b)) == 0
}
