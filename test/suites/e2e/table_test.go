//go:build kubernetes

package e2e

import (
	"fmt"
	"io"
	"sync"
)

// A result is a row of the table at the end.
type result struct {
	name, outcome  string
	seconds        float64
	proof, figures string
}

type table struct {
	mu    sync.Mutex
	rows  []*result
	notes []string // printed below
}

var results table

func (t *table) add(r *result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, r)
}

func (t *table) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes = append(t.notes, text)
}

func (t *table) print(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(w, "\n%-28s %-7s %7s  %s\n", "test", "outcome", "seconds", "what it showed")
	for _, r := range t.rows {
		text := r.proof
		if r.figures != "" {
			text += " (" + r.figures + ")"
		}
		fmt.Fprintf(w, "%-28s %-7s %7.1f  %s\n", r.name, r.outcome, r.seconds, text)
	}
	for _, text := range t.notes {
		fmt.Fprintf(w, "\n%s\n", text)
	}
	fmt.Fprintln(w)
}
