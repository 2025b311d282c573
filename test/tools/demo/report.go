package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A report prints one line for each step, with its duration and what it has proved.
type report struct {
	out     io.Writer
	color   bool
	started time.Time
	passed  int
	skipped int
}

// step runs one step and prints its result. do returns a description of what the step has proved.
func (r *report) step(name string, do func() (proved string, err error)) error {
	began := time.Now()
	proved, err := do()
	took := time.Since(began)
	if err != nil {
		r.line(r.paint("31", "FAIL"), took, name, "")
		return fmt.Errorf("%s: %w", name, err)
	}
	r.passed++
	r.line(r.paint("32", " ok "), took, name, proved)
	return nil
}

// skip prints that a step was skipped, and why.
func (r *report) skip(name, why string) {
	r.skipped++
	fmt.Fprintf(r.out, "%s %9s  %-26s %s\n", r.paint("33", "skip"), "", name, why)
}

// title prints the heading of a group of steps.
func (r *report) title(text string) { fmt.Fprintf(r.out, "\n%s\n", r.paint("1", text)) }

func (r *report) line(mark string, took time.Duration, name, proved string) {
	fmt.Fprintf(r.out, "%s %6d ms  %-26s %s\n", mark, took.Milliseconds(), name, proved)
}

func (r *report) paint(code, text string) string {
	if !r.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (r *report) summary(facts ...string) {
	fmt.Fprintf(r.out, "\n%s in %.1f s: %d steps passed", r.paint("1", "Done"), time.Since(r.started).Seconds(), r.passed)
	if r.skipped > 0 {
		fmt.Fprintf(r.out, ", %d skipped (they require root)", r.skipped)
	}
	fmt.Fprintf(r.out, ".\n%s\n", strings.Join(facts, "\n"))
}
