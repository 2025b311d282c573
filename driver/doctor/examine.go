package doctor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/driver/export"
)

// LongestCall is longer than any call takes, because the driver's callers wait for at most a
// minute. An object that remains incomplete for longer was left behind by an interrupted call.
const LongestCall = time.Minute

// An Examination reads targets and finds leftovers and differences. Fields with zero values have no
// effect unless stated otherwise.
type Examination struct {
	Targets []Target
	// Hosts derives the host of a node from the node's id. Hosts is required if Known is set or if
	// fenced nodes should be named.
	Hosts func(node string) export.Host
	// Timeout limits each reading of a target. A timeout is required.
	Timeout time.Duration
	// Wait waits between the two readings. If Wait is nil, Run reads the targets only once, and
	// nothing can be repaired. Run does not call Wait if every finding is conclusive (see
	// [Kind.Conclusive]).
	Wait func(context.Context) error
	// Early, if set, is called with the conclusive findings before Wait is called. The result of
	// Run includes these findings.
	Early func([]Finding)
	// Known returns the records in Kubernetes. Run calls it after the first reading, so that a
	// volume created in the meantime is not mistaken for an orphan. If Known is nil or returns nil,
	// Run does not compare the targets with Kubernetes.
	Known func() (*Known, error)
	// Partial means that Kubernetes uses targets that are not in Targets.
	Partial bool
	// Held returns the locks that calls in flight have acquired.
	Held func() []string
}

// Run returns the findings on which two readings agree. If all findings of the first reading are
// conclusive, there is no second reading.
func (e Examination) Run(ctx context.Context) ([]Finding, error) {
	readings, held := e.read(ctx)
	var known *Known
	answered := func(r *Reading) bool { kind, _, _ := r.refused(); return kind == "" }
	if e.Known != nil && slices.ContainsFunc(readings, answered) {
		var err error
		if known, err = e.Known(); err != nil {
			return nil, err
		}
	}
	findings := func() []Finding { return NotBusy(e.findings(readings, known), held) }
	first := findings()
	if len(first) == 0 {
		return nil, ctx.Err()
	}
	conclusive := slices.DeleteFunc(slices.Clone(first), func(f Finding) bool { return !f.Kind.Conclusive() })
	if len(conclusive) == len(first) {
		return first, ctx.Err()
	}
	if e.Wait == nil {
		for i := range first {
			first[i].Repair, first[i].repair = "", nil
		}
		return first, ctx.Err()
	}
	if e.Early != nil {
		e.Early(conclusive)
	}
	if err := e.Wait(ctx); err != nil {
		return nil, err
	}
	readings, held = e.read(ctx)
	return Confirmed(first, findings()), ctx.Err()
}

// findings returns the leftovers and differences in readings of the targets. If known is nil, it
// returns only the findings that the targets alone prove.
func (e Examination) findings(all []*Reading, known *Known) (found []Finding) {
	for _, r := range all {
		found = append(found, e.ofTarget(r, known)...)
	}
	if known != nil {
		found = append(found, e.compare(all, known)...)
	}
	found = append(found, halfMadeGroups(all, e.Partial)...)
	return sorted(append(found, duplicates(all)...))
}

// read reads all targets concurrently. held contains the locks of calls that were in flight before
// or after the reading.
func (e Examination) read(ctx context.Context) (all []*Reading, held []string) {
	note := func() {
		if e.Held != nil {
			held = append(held, e.Held()...)
		}
	}
	note()
	all = make([]*Reading, len(e.Targets))
	var wg sync.WaitGroup
	for i, t := range e.Targets {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, e.Timeout)
			defer cancel()
			all[i] = Read(ctx, t, e.Known != nil)
		})
	}
	wg.Wait()
	note()
	return all, held
}
