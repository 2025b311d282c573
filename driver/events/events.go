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
	// mostPerRound limits the number of Events that are created in a round. The remaining Events
	// are created in later rounds.
	mostPerRound = 50
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
	// Health returns the health of volumes by volume handle. It omits volumes whose state is
	// unknown.
	Health   func(ctx context.Context, handles []string) (map[string]volume.Health, error)
	Instance string        // name of this process, such as the name of its pod
	Interval time.Duration // time between two rounds
	Log      *slog.Logger

	Now func() time.Time // nil: time.Now

	findings map[key]*finding
	failure  string // the error that was logged last; empty after a success
}

// A key identifies a problem of a volume.
type key struct{ handle, reason string }

// A finding is a problem of a volume that was seen in an earlier round.
type finding struct {
	claim     kubernetes.Claim
	condition volume.Condition
	// rounds is the number of consecutive rounds in which the problem was present, or the negative
	// number of rounds in which it was absent.
	rounds   int
	known    bool      // whether the last round has read the volume's health
	reported time.Time // when the last Event about this problem was written; zero: never
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

// round compares the health of all volumes with the findings, and writes Events about the
// differences.
func (r *Reporter) round(ctx context.Context) error {
	claims, err := r.API.Claims(ctx, r.Driver)
	if err != nil {
		return err
	}
	byHandle := make(map[string]kubernetes.Claim, len(claims))
	handles := make([]string, 0, len(claims))
	for _, c := range claims {
		byHandle[c.Volume] = c
		handles = append(handles, c.Volume)
	}
	health, err := r.Health(ctx, handles)
	if err != nil {
		return err
	}
	r.note(byHandle, health)
	return r.report(ctx)
}

// note updates the findings. Findings about volumes whose state is unknown remain as they are.
func (r *Reporter) note(claims map[string]kubernetes.Claim, health map[string]volume.Health) {
	if r.findings == nil {
		r.findings = map[key]*finding{}
	}
	present := map[key]bool{}
	for handle, h := range health {
		for _, condition := range h.Conditions {
			k := key{handle, condition.Reason}
			f := r.findings[k]
			if f == nil {
				f = &finding{}
				r.findings[k] = f
			}
			f.claim, f.condition, f.rounds = claims[handle], condition, max(f.rounds, 0)+1
			present[k] = true
		}
	}
	for k, f := range r.findings {
		_, known := health[k.handle]
		if f.known = known; known && !present[k] {
			f.rounds = min(f.rounds, 0) - 1
		}
		_, exists := claims[k.handle]
		if !exists || f.rounds <= -confirmations && f.reported.IsZero() {
			delete(r.findings, k) // without a claim, there is no object for an Event
		}
	}
}

// report writes the Events that are due, the most severe problems first. It stops at the first
// error after which later calls probably fail as well.
func (r *Reporter) report(ctx context.Context) error {
	var due []kubernetes.Event
	keys := map[string]key{} // by name of the Event
	now := r.now()
	for k, f := range r.findings {
		if f.known && (f.rounds >= confirmations && dueAgain(k, f.reported, now) || f.rounds <= -confirmations) {
			e := r.eventOf(k, f, now)
			due, keys[e.Name] = append(due, e), k
		}
	}
	slices.SortFunc(due, func(a, b kubernetes.Event) int {
		return cmp.Or(cmp.Compare(urgency(b, r.findings[keys[b.Name]]), urgency(a, r.findings[keys[a.Name]])), cmp.Compare(a.Name, b.Name))
	})
	if len(due) > mostPerRound {
		r.Log.WarnContext(ctx, "there are too many Events about the health of volumes for one round; the others follow", "due", len(due), "written", mostPerRound)
		due = due[:mostPerRound]
	}
	var refused error
	for _, e := range due {
		err := r.API.CreateEvent(ctx, e)
		switch {
		case err == nil, errors.Is(err, kubernetes.ErrChanged): // another process has written this Event
		case errors.Is(err, kubernetes.ErrForbidden), errors.Is(err, kubernetes.ErrNotFound), errors.Is(err, kubernetes.ErrInvalid):
			refused = err // possibly only in this namespace, for example because it is being deleted
		default:
			return err
		}
		k := keys[e.Name]
		if f := r.findings[k]; f.rounds < 0 {
			delete(r.findings, k)
		} else {
			f.reported = now
		}
	}
	return refused
}

// urgency orders Events: first problems that make a volume inaccessible, then other problems that
// were not reported before, then the remaining Events.
func urgency(e kubernetes.Event, f *finding) int {
	switch {
	case e.Warning && f.condition.Inaccessible && f.reported.IsZero():
		return 3
	case e.Warning && f.reported.IsZero():
		return 2
	case !e.Warning:
		return 1
	}
	return 0
}

func (r *Reporter) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}
