package events

import (
	"cmp"
	"context"
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
	health map[string]volume.Condition // by volume handle; volumes in unknown are omitted from responses
	// unknown lists the volumes of targets that do not respond.
	unknown map[string]bool
	gone    map[string]bool // volumes without a claim
	events  map[string]kubernetes.Event
	order   []kubernetes.Event
	refuse  func(e kubernetes.Event) error // nil: never
	err     error                          // of Problems
}

func newWorld() *world {
	return &world{now: time.Unix(1_800_000_000, 0), health: map[string]volume.Condition{}, unknown: map[string]bool{}, gone: map[string]bool{}, events: map[string]kubernetes.Event{}}
}

// set changes the problem of a volume. An empty reason means that it has none.
func (w *world) set(handle, reason string) {
	w.health[handle] = volume.Condition{Reason: reason, Inaccessible: reason != "LvstoreFull", Message: reason + " of " + handle}
	if reason == "" {
		w.health[handle] = volume.Condition{}
	}
}

func (w *world) Claims(_ context.Context, driver string) (claims []kubernetes.Claim, err error) {
	if driver != "csi.spdk.io" {
		return nil, fmt.Errorf("driver %q", driver)
	}
	for handle := range w.health {
		if !w.gone[handle] {
			claims = append(claims, kubernetes.Claim{Namespace: w.namespace(handle), Name: handle, UID: "uid of " + handle, Volume: handle, Store: "lvs0"})
		}
	}
	return claims, nil
}

// namespace returns the namespace of a claim, such as apps of apps/pvc-1.
func (w *world) namespace(handle string) string {
	if namespace, _, ok := strings.Cut(handle, "/"); ok {
		return namespace
	}
	return "apps"
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
		Problems: func(_ context.Context, stores map[string]string) (map[string]volume.Condition, error) {
			all := map[string]volume.Condition{}
			for handle, store := range stores {
				if store == "lvs0" && !w.unknown[handle] {
					all[handle] = w.health[handle]
				}
			}
			return all, w.err
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
	w.set("pvc-2", "")
	assert.Empty(t, w.pass(t, 2*time.Minute, r), "not confirmed yet")
	assert.Equal(t, []string{"pvc-1 LvstoreFull"}, w.pass(t, 2*time.Minute, r))
	e := w.order[0]
	assert.True(t, e.Warning)
	assert.Equal(t, "LvstoreFull of pvc-1", e.Message)
	assert.Equal(t, kubernetes.Claim{Namespace: "apps", Name: "pvc-1", UID: "uid of pvc-1", Volume: "pvc-1", Store: "lvs0"}, e.Claim)
	assert.Equal(t, []string{"csi.spdk.io", "controller-1"}, []string{e.Component, e.Instance})
	assert.InDelta(t, 10, len(w.pass(t, 5*time.Hour, r)), 1)
	w.set("pvc-1", "")
	before := len(w.order)
	assert.Empty(t, w.pass(t, 2*time.Minute, r), "not confirmed yet")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, 2*time.Hour, r))
	assert.False(t, w.order[before].Warning)
	assert.Contains(t, w.order[before].Message, "LvstoreFull")
	assert.Empty(t, r.volumes)
}

// Several controllers, and a restarted controller, do not repeat Events.
func TestControllersDoNotRepeatEachOthersEvents(t *testing.T) {
	w := newWorld()
	a, b := w.reporter(), w.reporter()
	w.set("pvc-1", "LvstoreMissing")
	assert.Equal(t, []string{"pvc-1 LvstoreMissing"}, w.pass(t, 4*time.Minute, a, b))
	assert.Empty(t, w.pass(t, 4*time.Minute, w.reporter()), "restarted")
	w.set("pvc-1", "")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, time.Hour, a, b))
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
	w.set("pvc-1", "")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, time.Hour, r))
}

func TestVolumesWithoutClaimAreForgotten(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "VolumeMissing")
	w.pass(t, 4*time.Minute, r)
	w.gone["pvc-1"] = true
	assert.Empty(t, w.pass(t, 2*time.Hour, r))
	assert.Empty(t, r.volumes)
}

// An Event about the end of a problem is written only if the volume has no problem any more. If a
// worse problem replaces a problem, there is no such Event.
func TestWorseProblemIsNoRecovery(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "LvstoreFull")
	w.pass(t, 4*time.Minute, r)
	w.set("pvc-1", "VolumeMissing")
	assert.Equal(t, []string{"pvc-1 VolumeMissing"}, w.pass(t, 14*time.Minute, r))
	w.set("pvc-1", "")
	assert.Equal(t, []string{"pvc-1 VolumeRecovered"}, w.pass(t, time.Hour, r))
}

// If a problem returns soon, the last Event is about the problem, and not about its end.
func TestReturningProblemIsReportedLast(t *testing.T) {
	for minutes := 2; minutes < 90; minutes += 2 {
		w := newWorld()
		r := w.reporter()
		w.set("pvc-1", "LvstoreFull")
		w.pass(t, 4*time.Minute, r)
		w.set("pvc-1", "")
		w.pass(t, time.Duration(minutes)*time.Minute, r)
		w.set("pvc-1", "LvstoreFull")
		w.pass(t, 4*time.Minute, r)
		assert.Equal(t, "LvstoreFull", w.order[len(w.order)-1].Reason, minutes)
	}
}

// Rounds in which a volume's health is unknown are not skipped: a problem must be seen in two
// consecutive rounds.
func TestProblemIsConfirmedInConsecutiveRounds(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	w.set("pvc-1", "LvstoreMissing")
	for range 10 {
		w.unknown["pvc-1"] = false
		assert.Empty(t, w.pass(t, 2*time.Minute, r))
		w.unknown["pvc-1"] = true
		assert.Empty(t, w.pass(t, 2*time.Minute, r))
	}
}

// If a problem affects many volumes, each round writes at most 50 Events, beginning with the
// inaccessible volumes. Events that another process has written do not count.
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

	other := w.reporter()
	w.set("last", "LvstoreFull")
	assert.Contains(t, w.pass(t, 4*time.Minute, other), "last LvstoreFull")
}

// However many volumes have a lasting problem, all of them are reported again in turn.
func TestAllLastingProblemsAreReportedInTurn(t *testing.T) {
	w := newWorld()
	r := w.reporter()
	const volumes = 2000
	for n := range volumes {
		w.set(fmt.Sprintf("pvc-%d", n), "LvstoreFull")
	}
	w.pass(t, 10*time.Hour, r)
	last, longest := map[string]time.Time{}, time.Duration(0)
	for _, e := range w.order {
		if before, ok := last[e.Claim.Name]; ok {
			longest = max(longest, e.Time.Sub(before))
		}
		last[e.Claim.Name] = e.Time
	}
	assert.Len(t, last, volumes)
	assert.Less(t, longest, 3*time.Hour, "50 in two minutes")
}

// Whatever happens to volumes and targets, each reason is reported at most once for a volume in
// each half hour, only if it was seen twice, and the end of a problem only after a report. If
// nothing changes for an hour, the last Event of each volume is true.
func TestRandomHealthIsReportedWithinItsLimits(t *testing.T) {
	reasons := []string{"", "", "LvstoreFull", "LvstoreMissing", "VolumeMissing"}
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 27))
		w := newWorld()
		reporters := []*Reporter{w.reporter(), w.reporter()}
		seen := map[string]int{} // how often a problem was present, by "volume reason"
		step := func() {
			for handle, c := range w.health {
				if !w.unknown[handle] {
					seen[handle+" "+c.Reason]++
				}
			}
			w.pass(t, 2*time.Minute, reporters...)
		}
		for range 200 {
			handle := fmt.Sprintf("pvc-%d", random.IntN(8))
			switch random.IntN(8) {
			case 0:
				w.unknown[handle] = !w.unknown[handle]
			case 1:
				reporters[random.IntN(2)] = w.reporter() // restarted
			default:
				w.set(handle, reasons[random.IntN(len(reasons))])
			}
			step()
		}
		clear(w.unknown)
		for range 40 {
			step()
		}
		slots, reported, last := map[string]bool{}, map[string]bool{}, map[string]string{}
		for _, e := range w.order {
			slot := fmt.Sprint(e.Claim.Name, " ", e.Reason, " ", slotOf(e.Claim.Volume, e.Time))
			assert.False(t, slots[slot], slot)
			slots[slot] = true
			if e.Warning {
				assert.GreaterOrEqual(t, seen[e.Claim.Name+" "+e.Reason], confirmations)
			} else {
				assert.True(t, reported[e.Claim.Name])
			}
			reported[e.Claim.Name] = true // another process may report the end once more
			last[e.Claim.Name] = strings.TrimSuffix(e.Reason, reasonOver)
		}
		for handle, c := range w.health {
			if c.Reason != "" {
				assert.Equal(t, c.Reason, last[handle], "seed %d, %s", seed, handle)
			}
		}
		assert.NotEmpty(t, reported)
	}
}

// The problems of many volumes are repeated at different times.
func TestRepetitionsAreSpread(t *testing.T) {
	minutes := map[int]int{}
	start := time.Unix(1_800_000_000, 0)
	for n := range 3000 {
		handle := fmt.Sprint("volume ", n)
		for m := range 30 {
			if slotOf(handle, start.Add(time.Duration(m)*time.Minute)) != slotOf(handle, start.Add(time.Duration(m+1)*time.Minute)) {
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
	v := &state{rounds: 2, found: volume.Condition{Reason: "LvstoreFull", Message: "lvstore \x1b[2J" + strings.Repeat("ä", 2000)}}
	names := map[string]bool{}
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a", strings.Repeat("a", 199) + "-b"} {
		v.claim = kubernetes.Claim{Namespace: "apps", Name: name, UID: "1"}
		e := r.eventOf(key{"1", "t:1"}, v, now)
		assert.Empty(t, validation.IsDNS1123Subdomain(e.Name), e.Name)
		assert.LessOrEqual(t, len(e.Message), 1024)
		assert.True(t, utf8.ValidString(e.Message))
		assert.NotContains(t, e.Message, "\x1b")
		names[e.Name] = true
	}
	v.claim.UID = "2"
	names[r.eventOf(key{"1", "t:1"}, v, now).Name] = true
	names[r.eventOf(key{"1", "t:1"}, v, now.Add(repeat)).Name] = true
	assert.Len(t, names, 6, "every claim and slot has its own name")
}
