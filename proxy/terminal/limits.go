package terminal

import "strings"

// AddLimits adds the user's own limits on calls.
func (s *Status) AddLimits(l Limits) {
	s.Limits = &l
	if l.CallsWaiting > 0 {
		s.warn("waiting calls of user %s: %d, because %d of %d are running", l.User, l.CallsWaiting, l.CallsRunning, l.CallsRunningLimit)
	}
}

func (p Page) limits(b *strings.Builder, line func(colour, text string), l *Limits) {
	line("", "")
	line(bold, "Limits of user "+l.User)
	p.bar(b, "running", len("subsystems"), quotaAmount{"calls", &l.CallsRunning, &l.CallsRunningLimit})
	if l.CallsPerSecondLimit != nil {
		p.bar(b, "per second", len("subsystems"), quotaAmount{"calls in the last second", l.CallsPerSecond, l.CallsPerSecondLimit})
	}
}
