package persist

import "time"

// A Status tells how it stands with the saved configuration.
type Status struct {
	File    string
	Held    string    // where the configuration of a target that lacks some of File is
	SavedAt time.Time // of the file; zero: neither read nor written yet
	Pending bool      // there are changes that are not saved yet
	// Missing is what the target lacks of the file, which stays as it is meanwhile.
	Missing []Call
	// Unsettled: the same process has it no more, though no call took it away. It is
	// taken for true when the target lives on.
	Unsettled bool
	// Failed: the last attempt failed; the log says why. That there is no target is
	// no failure while nothing is pending.
	Failed bool
	// Chosen is when File was chosen by an administrator, if the target has not
	// loaded it since. Changes are saved to Held meanwhile.
	Chosen time.Time
}

// Complete reports whether the process of the target that runs now has all that is
// saved. It is false while that is not known.
func (s *Saver) Complete() bool {
	if !s.processCompared() {
		return false
	}
	now := s.Status()
	return !now.SavedAt.IsZero() && len(now.Missing) == 0
}

// Status tells how it stands.
func (s *Saver) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.status
	now.Pending, now.Failed = s.changes != s.saved, s.err != nil
	return now
}
