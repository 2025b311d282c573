// Package events writes Kubernetes Events about the health of volumes to their claims, where users
// see them with `kubectl describe pvc`. Begin with [Reporter.Run]. Package events must not depend
// on targets, CSI services, devices or mounts: callers pass in what the targets report.
package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/volume"
)

const (
	// confirmations is the number of consecutive rounds that must agree before an Event is written.
	// So a target that is restarting causes no Events.
	confirmations = 2
	// mostCreated limits the number of Events that are created in a round, and mostCalls the number
	// of attempts. The remaining Events are created in later rounds.
	mostCreated, mostCalls = 50, 200
	// mostFailures is the number of namespaces in which calls may fail before the round ends,
	// because the API server probably fails all calls.
	mostFailures = 3
	roundTimeout = 2 * time.Minute
)

// An API lists claims and creates Events. [kubernetes.Client] implements it.
type API interface {
	Claims(ctx context.Context, driver string) ([]kubernetes.Claim, error)
	CreateEvent(ctx context.Context, e kubernetes.Event) error
}

// A Reporter writes Events about the health of all volumes of a driver. Several processes may
// report the same volumes: the names of Events depend only on the volume, the problem and the time,
// so the API server rejects duplicates.
type Reporter struct {
	API    API
	Driver string // name of the driver
	// Problems returns the most severe problem of each volume by volume handle, or an empty
	// condition if the volume has none. stores contains the lvstore in which each volume was
	// created. Problems omits volumes whose state is unknown; its error says why.
	Problems func(ctx context.Context, stores map[string]string) (map[string]volume.Condition, error)
	Instance string        // name of this process, such as the name of its pod
	Interval time.Duration // time between two rounds
	Log      *slog.Logger

	Now func() time.Time // nil: time.Now

	volumes map[key]*state
	failed  map[string]time.Time // when the last attempt to write an Event in a namespace failed
	failure string               // the error that was logged last; empty after a success
	behind  bool                 // whether the last round has left Events for later rounds
}

// A key identifies a volume and its claim.
type key struct{ uid, handle string }

// A state contains what is known and what was reported about a volume with a problem.
type state struct {
	claim  kubernetes.Claim
	found  volume.Condition // what the last rounds have found; empty if there is no problem
	rounds int              // number of consecutive rounds that have found this
	// reported is the reason in the last Event. It is empty before the first Event, and after an
	// Event about the end of a problem.
	reported string
	written  map[string]time.Time // when the last Event with each reason was written
}

// Run writes Events until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	for {
		r.logFailure(ctx, r.round(ctx))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// logFailure logs the error of a round, unless it is the same as in the round before.
func (r *Reporter) logFailure(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		r.failure = ""
	case err.Error() != r.failure:
		r.failure = err.Error()
		r.Log.WarnContext(ctx, "no Events are written about the health of some volumes", "error", err)
	}
}

// round reads the health of all volumes, and writes Events about the changes.
func (r *Reporter) round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	claims, err := r.API.Claims(ctx, r.Driver)
	if err != nil {
		return err
	}
	if r.failed == nil {
		r.failed = map[string]time.Time{}
	}
	stores := make(map[string]string, len(claims))
	for _, c := range claims {
		stores[c.Volume] = cmp.Or(c.Store, stores[c.Volume])
	}
	problems, unknown := r.Problems(ctx, stores)
	r.note(claims, problems)
	return errors.Join(unknown, r.report(ctx))
}

// note updates the states. After a round in which the health of a volume is unknown, its health
// must be confirmed again.
func (r *Reporter) note(claims []kubernetes.Claim, problems map[string]volume.Condition) {
	before := r.volumes
	r.volumes = map[key]*state{} // states without a claim are dropped, as no Event can be written
	for _, c := range claims {
		k := key{c.UID, c.Volume}
		problem, known := problems[c.Volume]
		v := before[k]
		switch {
		case v == nil && problem.Reason == "":
			continue
		case v == nil:
			v = &state{written: map[string]time.Time{}}
		case !known:
			v.rounds = 0
		case v.found.Reason == "" && problem.Reason == "" && v.rounds >= confirmations && v.reported == "":
			continue // healthy again
		}
		if known && problem.Reason != v.found.Reason {
			v.rounds = 0
		}
		if v.claim = c; known {
			v.found = problem
			v.rounds++
		}
		r.volumes[k] = v
	}
}

// A due is an Event that must be written, and the state that it is about.
type due struct {
	kubernetes.Event
	state *state
	order int
	// failed is when the last attempt in the namespace failed; zero if it succeeded.
	failed time.Time
}

// report writes the Events that are due, the most urgent Events first.
func (r *Reporter) report(ctx context.Context) error {
	events := r.due()
	created, calls, failed := 0, 0, map[string]bool{} // by namespace
	var first error
	left := false
	for _, e := range events {
		if left = created == mostCreated || calls == mostCalls || len(failed) == mostFailures; left {
			break
		}
		namespace := e.Claim.Namespace
		if failed[namespace] {
			continue
		}
		calls++
		err := r.API.CreateEvent(ctx, e.Event)
		if err != nil && !errors.Is(err, kubernetes.ErrChanged) {
			first = cmp.Or(first, err)
			failed[namespace], r.failed[namespace] = true, e.Time
			continue
		}
		delete(r.failed, namespace)
		if err == nil {
			created++
		} // otherwise, another process has written this Event
		e.state.written[e.Reason] = e.Time
		if e.state.reported = e.state.found.Reason; !e.Warning {
			clear(e.state.written)
		}
	}
	if left && !r.behind {
		r.Log.WarnContext(ctx, "not all Events about the health of volumes were written in this round; the others follow", "due", len(events), "written", created)
	}
	r.behind = left
	return first
}

// due returns the Events that must be written now, in order. Namespaces in which the last attempt
// failed come last, beginning with the namespace that was tried the longest time ago.
func (r *Reporter) due() []due {
	var all []due
	now := r.now()
	for k, v := range r.volumes {
		if v.rounds >= confirmations && v.mustReport(k.handle, now) {
			all = append(all, due{r.eventOf(k, v, now), v, v.order(), r.failed[v.claim.Namespace]})
		}
	}
	slices.SortFunc(all, func(a, b due) int {
		last := func(d due) int64 { return d.state.written[d.Reason].Unix() }
		return cmp.Or(a.failed.Compare(b.failed), cmp.Compare(a.order, b.order), cmp.Compare(last(a), last(b)), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// mustReport reports whether an Event about the current state must be written. There is at most one
// Event with the same reason in each slot. The end of a problem is reported in a later slot than
// the problem, so that a problem that returns can be reported again immediately.
func (v *state) mustReport(handle string, now time.Time) bool {
	slot := slotOf(handle, now)
	if v.found.Reason == "" {
		for _, at := range v.written {
			if slotOf(handle, at) == slot {
				return false
			}
		}
		return v.reported != ""
	}
	last := v.written[v.found.Reason]
	return slotOf(handle, last) != slot && (v.reported != v.found.Reason || now.Sub(last) >= repeat/2)
}

// order returns the position of a state among the states that must be reported.
func (v *state) order() int {
	switch {
	case v.found.Reason == "":
		return 2
	case v.reported == v.found.Reason:
		return 3
	case v.found.Inaccessible:
		return 0
	}
	return 1
}

func (r *Reporter) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}
