//go:build kernel

package kernel

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// A result is the outcome of a test case, which consists of several steps on one machine.
type result struct {
	name    string
	steps   int
	seconds float64
	figures string // figures of the last step that reported any
	failed  string // the step that failed, and its error
}

// record adds a step to its case.
func (m *Machine) record(s control.Step) {
	name := cmp.Or(s.Case, "preparation and end")
	var r *result
	for _, c := range m.cases {
		if c.name == name {
			r = c
		}
	}
	if r == nil {
		r = &result{name: name}
		m.cases = append(m.cases, r)
	}
	r.steps++
	r.seconds += s.Seconds
	if s.Figures != "" {
		r.figures = s.Figures
	}
	if s.Error != "" {
		r.failed = s.Name + ": " + s.Error
	}
}

// Table returns the outcome of each test case.
func (m *Machine) Table() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-64s %-7s %5s %7s  %s\n", "case", "outcome", "steps", "seconds", "figures")
	for _, r := range m.cases {
		outcome, figures := "passed", r.figures
		if r.failed != "" {
			outcome, figures = "FAILED", strings.ReplaceAll(r.failed, "\n", " ")
		}
		fmt.Fprintf(&b, "%-64s %-7s %5d %7.1f  %s\n", r.name, outcome, r.steps, r.seconds, figures)
	}
	return b.String()
}
