package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/spdkgate/spdkgate/driver/kubernetes"
	"github.com/spdkgate/spdkgate/driver/volume"
)

// A world simulates the API server and the targets. Each volume has a claim with the same name.
type world struct {
	now    time.Time
	health map[string]volume.Health // by volume handle; volumes in unknown are omitted from responses
	// unknown lists the volumes of targets that do not respond.
	unknown map[string]bool
	gone    map[string]bool // volumes without a claim
	events  map[string]kubernetes.Event
	order   []kubernetes.Event
	refuse  func(e kubernetes.Event) error // nil: never
}

func newWorld() *world {
	return &world{now: time.Unix(1_800_000_000, 0), health: map[string]volume.Health{}, unknown: map[string]bool{}, gone: map[string]bool{}, events: map[string]kubernetes.Event{}}
}

// set changes the problems of a volume.
func (w *world) set(handle string, reasons ...string) {
	h := volume.Health{UUID: handle}
	for _, reason := range reasons {
		h.Conditions = append(h.Conditions, volume.Condition{Reason: reason, Inaccessible: reason != "LvstoreFull", Message: reason + " of " + handle})
	}
	w.health[handle] = h
}

func (w *world) Claims(_ context.Context, driver string) (claims []kubernetes.Claim, err error) {
	if driver != "csi.spdk.io" {
		return nil, fmt.Errorf("driver %q", driver)
	}
	for handle := range w.health {
		if !w.gone[handle] {
			claims = append(claims, kubernetes.Claim{Namespace: "apps", Name: handle, UID: "uid of " + handle, Volume: handle})
		}
	}
	return claims, nil
}

func (w *world) CreateEvent(_ context.Context, e kubernetes.Event) error {
	if w.refuse != nil {
		if err := w.refuse(e); err != nil {
			return err
		}
	}
	if _, ok := w.events[e.Name]; ok {
		return kubernetes.ErrChanged
	}
	w.events[e.Name] = e
	w.order = append(w.order, e)
	return nil
}

func (w *world) reporter() *Reporter {
	return &Reporter{
		API: w, Driver: "csi.spdk.io", Instance: "controller-1", Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
		Health: func(_ context.Context, handles []string) (map[string]volume.Health, error) {
			all := map[string]volume.Health{}
			for _, handle := range handles {
				if !w.unknown[handle] {
					all[handle] = w.health[handle]
				}
			}
			return all, nil
		},
	}
}

// pass lets time pass in rounds of two minutes, and returns the new Events as "claim reason".
func (w *world) pass(t *testing.T, d time.Duration, reporters ...*Reporter) (written []string) {
	t.Helper()
	before := len(w.order)
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(2 * time.Minute) {
		for _, r := range reporters {
			require.NoError(t, r.round(t.Context()))
		}
	}
	for _, e := range w.order[before:] {
		written = append(written, e.Claim.Name+" "+e.Reason)
	}
	return written
}

// A problem is reported after the second round, repeated every half hour while it lasts, and its
// end is reported once.
func TestLastingProblemIsReportedEveryHalfHour(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "LvstoreFull")
	w.set("pvc-2")
	assert.Empty(t, w.pass(t, 2*time.Minute, r), "not confirmed yet")
	assert.Equal(t, []string{"pvc-1 LvstoreFull"}, w.pass(t, 2*time.Minute, r))
	e := w.order[0]
	assert.True(t, e.Warning)
	assert.Equal(t, "LvstoreFull of pvc-1", e.Message)
	assert.Equal(t, kubernetes.Claim{Namespace: "apps", Name: "pvc-1", UID: "uid of pvc-1", Volume: "pvc-1"}, e.Claim)
	assert.Equal(t, []string{"csi.spdk.io", "controller-1"}, []string{e.Component, e.Instance})
	assert.InDelta(t, 10, len(w.pass(t, 5*time.Hour, r)), 1)
	w.set("pvc-1")
	before := len(w.order)
	assert.Empty(t, w.pass(t, 2*time.Minute, r), "not confirmed yet")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, 2*time.Hour, r))
	assert.False(t, w.order[before].Warning)
	assert.Contains(t, w.order[before].Message, "LvstoreFull")
	assert.Empty(t, r.findings)
}

// Several controllers, and a restarted controller, do not repeat Events.
func TestControllersDoNotRepeatEachOthersEvents(t *testing.T) {
	w := newWorld()
	a, b := w.reporter(), w.reporter()
	w.set("pvc-1", "LvstoreMissing")
	assert.Equal(t, []string{"pvc-1 LvstoreMissing"}, w.pass(t, 4*time.Minute, a, b))
	assert.Empty(t, w.pass(t, 4*time.Minute, w.reporter()), "restarted")
	w.set("pvc-1")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, 6*time.Minute, a, b))
}

// While a target does not respond, nothing is reported about its volumes, neither a problem nor its
// end.
func TestUnknownHealthIsNotReported(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "LvstoreFull")
	w.pass(t, 4*time.Minute, r)
	w.unknown["pvc-1"] = true
	assert.Empty(t, w.pass(t, 3*time.Hour, r))
	w.unknown["pvc-1"] = false
	w.set("pvc-1")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, 4*time.Minute, r))
}

func TestVolumesWithoutClaimAreForgotten(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "VolumeMissing")
	w.pass(t, 4*time.Minute, r)
	w.gone["pvc-1"] = true
	assert.Empty(t, w.pass(t, 2*time.Hour, r))
	assert.Empty(t, r.findings)
}

// If a problem affects many volumes, each round writes at most 50 Events, beginning with the
// inaccessible volumes.
func TestEventsPerRoundAreLimited(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	for n := range 60 {
		w.set(fmt.Sprintf("full-%d", n), "LvstoreFull")
		w.set(fmt.Sprintf("missing-%d", n), "LvstoreMissing")
	}
	assert.Empty(t, w.pass(t, 2*time.Minute, r))
	var all []string
	for _, want := range []int{50, 50, 20, 0} {
		written := w.pass(t, 2*time.Minute, r)
		assert.Len(t, written, want)
		all = append(all, written...)
	}
	for n, e := range all {
		assert.Equal(t, n < 60, strings.HasSuffix(e, " LvstoreMissing"), e)
	}
	slices.Sort(all)
	assert.Len(t, slices.Compact(all), 120)
}

// A namespace that accepts no Events does not prevent Events in other namespaces. If the API server
// fails, the Events are written later.
func TestFailedEventsAreHandled(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "LvstoreMissing")
	w.set("pvc-2", "LvstoreMissing")
	w.pass(t, 2*time.Minute, r)
	for _, kind := range []error{kubernetes.ErrForbidden, kubernetes.ErrNotFound, kubernetes.ErrInvalid} {
		w.now = w.now.Add(repeat)
		w.refuse = func(e kubernetes.Event) error {
			if e.Claim.Name == "pvc-1" {
				return fmt.Errorf("namespace: %w", kind)
			}
			return nil
		}
		before := len(w.order)
		require.ErrorIs(t, r.round(t.Context()), kind)
		require.Len(t, w.order, before+1)
		require.NoError(t, r.round(t.Context()), "the refused Event is not tried again in this half hour")
	}
	w.now = w.now.Add(repeat)
	broken := errors.New("no response")
	w.refuse = func(kubernetes.Event) error { return broken }
	before := len(w.order)
	require.ErrorIs(t, r.round(t.Context()), broken)
	w.refuse = nil
	require.NoError(t, r.round(t.Context()))
	assert.Len(t, w.order, before+2)
}

// Whatever happens to volumes and targets, each problem of each volume is reported at most once per
// half hour, only if it was seen twice, and its end only after a report.
func TestRandomHealthIsReportedWithinItsLimits(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 27))
		w := newWorld()
		reporters := []*Reporter{w.reporter(), w.reporter()}
		seen := map[string]int{} // how often a problem was present, by "volume reason"
		for range 200 {
			handle := fmt.Sprintf("pvc-%d", random.IntN(8))
			switch random.IntN(6) {
			case 0:
				w.unknown[handle] = !w.unknown[handle]
			case 1:
				w.set(handle)
			case 2:
				w.set(handle, "LvstoreFull")
			case 3:
				w.set(handle, "LvstoreMissing", "LvstoreFull")
			case 4:
				reporters[random.IntN(2)] = w.reporter() // restarted
			}
			for handle, h := range w.health {
				for _, c := range h.Conditions {
					if !w.unknown[handle] {
						seen[handle+" "+c.Reason]++
					}
				}
			}
			w.pass(t, 2*time.Minute, reporters...)
		}
		reported := map[string]time.Time{}
		for _, e := range w.order {
			name := e.Claim.Name + " " + e.Reason
			if !e.Warning {
				name += " " + e.Message
			}
			if last, ok := reported[name]; ok {
				slots := e.Time.Sub(last) >= repeat || slotsDiffer(e, last)
				assert.True(t, slots, "%s at %s and %s", name, last, e.Time)
			}
			reported[name] = e.Time
			if e.Warning {
				assert.GreaterOrEqual(t, seen[name], confirmations, name)
			} else {
				first := slices.IndexFunc(w.order, func(o kubernetes.Event) bool {
					return o.Claim.Name == e.Claim.Name && strings.Contains(e.Message, " "+o.Reason+" ")
				})
				assert.Less(t, first, slices.IndexFunc(w.order, func(o kubernetes.Event) bool { return o.Name == e.Name }))
				assert.GreaterOrEqual(t, first, 0)
			}
		}
		assert.NotEmpty(t, reported)
	}
}

// slotsDiffer reports whether a time is in another slot than an Event.
func slotsDiffer(e kubernetes.Event, last time.Time) bool {
	k := key{e.Claim.Volume, e.Reason}
	if !e.Warning {
		k.reason = strings.Fields(e.Message)[2]
	}
	return slotOf(k, e.Time) != slotOf(k, last)
}

// The problems of many volumes are repeated at different times.
func TestRepetitionsAreSpread(t *testing.T) {
	minutes := map[int]int{}
	start := time.Unix(1_800_000_000, 0)
	for n := range 3000 {
		k := key{fmt.Sprint("volume ", n), "LvstoreFull"}
		for m := range 30 {
			if slotOf(k, start.Add(time.Duration(m)*time.Minute)) != slotOf(k, start.Add(time.Duration(m+1)*time.Minute)) {
				minutes[m]++
			}
		}
	}
	assert.Len(t, minutes, 30)
	assert.Less(t, slices.MaxFunc(slices.Collect(maps.Values(minutes)), cmp.Compare[int]), 200)
}

// Names of Events are valid for each name of a claim, and messages fit into an Event.
func TestEventsAreValid(t *testing.T) {
	r := newWorld().reporter()
	now := time.Now()
	f := &finding{rounds: 2, condition: volume.Condition{Message: "lvstore \x1b[2J" + strings.Repeat("ä", 2000)}}
	names := map[string]bool{}
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a", strings.Repeat("a", 199) + "-b"} {
		f.claim = kubernetes.Claim{Namespace: "apps", Name: name, UID: "1"}
		e := r.eventOf(key{"t:1", "LvstoreFull"}, f, now)
		assert.Empty(t, validation.IsDNS1123Subdomain(e.Name), e.Name)
		assert.LessOrEqual(t, len(e.Message), 1024)
		assert.True(t, utf8.ValidString(e.Message))
		assert.NotContains(t, e.Message, "\x1b")
		names[e.Name] = true
	}
	f.claim.UID = "2"
	names[r.eventOf(key{"t:1", "LvstoreFull"}, f, now).Name] = true
	names[r.eventOf(key{"t:1", "LvstoreFull"}, f, now.Add(repeat)).Name] = true
	assert.Len(t, names, 6, "every claim, problem and slot has its own name")
}
