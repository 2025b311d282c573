package persist

import (
	"context"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/persist/initiators"
	"github.com/spdkgate/spdkgate/proxy/persist/raids"
)

// A Status describes the state of the saved configuration.
type Status struct {
	File    string
	Held    string    // path of the configuration of a target that lacks parts of File
	SavedAt time.Time // modification time of File; zero before File is first read or written
	Pending bool      // whether there are unsaved changes
	// Missing lists the calls in File that the target lacks. They stay in File.
	Missing      []Call
	MissingISCSI []initiators.Export // the iSCSI target nodes and initiator groups in Missing
	// Unsettled means that the running process once had the missing calls, and that no call through
	// this proxy removed them. If the target keeps running, they will count as removed.
	Unsettled bool
	// Failed means that the last attempt failed, for a reason stated in the log. An unreachable
	// target counts as a failure only if there are unsaved changes.
	Failed bool
	// NotRestorable lists the target's RAIDs that a restart would not restore.
	NotRestorable []raids.Lost
	// Chosen is when an administrator chose File. It is zero once the target has loaded File. Until
	// then, changes are saved to Held.
	Chosen time.Time
}

// Complete reports whether the target's running process contains every saved object. It returns
// false if this is unknown.
func (s *Saver) Complete() bool {
	if !s.processCompared() {
		return false
	}
	now := s.Status()
	return !now.SavedAt.IsZero() && len(now.Missing) == 0
}

// Status returns the state after the last attempt to save or the last Folder.Use, whichever is
// later.
func (s *Saver) Status() Status {
	chosen, saved := s.choice.read(s.opts.Folder)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.status
	now.Pending, now.Failed = s.changes != s.saved, s.err != nil
	if !chosen.IsZero() && !chosen.Equal(s.decidedOn) { // the next save determines whether the target has loaded the file
		now.Chosen, now.SavedAt = chosen, saved
	}
	return now
}

// unrestorable lists the RAIDs that loading the configuration would not restore.
func (c *Configuration) unrestorable(ctx context.Context, ask Ask) ([]raids.Lost, error) {
	list, err := raids.List(ctx, ask)
	if err != nil {
		return nil, err
	}
	for _, s := range c.Subsystems {
		if s.Name == "bdev" {
			return raids.Unrestorable(list, s.Calls), nil
		}
	}
	return nil, nil
}

// noteUnrestorable records the RAIDs that a restart would not restore, and logs each new one. The
// caller must hold s.mu.
func (s *Saver) noteUnrestorable(lost []raids.Lost) {
	for _, l := range lost {
		if !slices.Contains(s.status.NotRestorable, l) {
			s.opts.Log.Warn("a restart of the target would not restore a RAID", "raid", l.Raid, "disk", l.Disk, "reason", l.Reason())
		}
	}
	s.status.NotRestorable = lost
}

// Lacks reports whether a call removes an object that the saved file contains but the target lacks.
func (s *Saver) Lacks(method string, params map[string]any) bool {
	m, known := s.opts.Schema.Method(method)
	now := s.Status()
	if !known || !m.Removes || len(now.Missing) == 0 {
		return false
	}
	r := removal{undoes: m.Undoes, params: params}
	r.names, _ = s.opts.Schema.Names(method, params, maxNames)
	return slices.ContainsFunc(now.Missing, r.removes)
}
