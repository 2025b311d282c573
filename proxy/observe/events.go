package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/proxy/events"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/web"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

const (
	// eventPoll is the interval at which the target's notifications are read.
	eventPoll = time.Second
	// eventLinger is how long the target is still polled after the last listener has left, because
	// clients reconnect.
	eventLinger = 30 * time.Second
	// conditionPoll is the interval at which lasting conditions, such as full lvstores and expiring
	// certificates, are checked.
	conditionPoll = 30 * time.Second
	// notificationsAtOnce is the maximum number of notifications that one call returns.
	notificationsAtOnce = 1000
	// resolvedAtOnce is the maximum number of calls per poll that look up names of new volumes.
	resolvedAtOnce = 8
)

// These constants are the thresholds of conditions.
const (
	nearlyFull    = 0.90
	noLongerFull  = 0.88 // lower, so that an lvstore near the threshold does not cause many events
	expiresSoon   = 14 * 24 * time.Hour
	bytesInGiB    = 1 << 30
	targetDownKey = "target"
	startupKey    = "startup"
)

// Source returns a new Source. Only one goroutine may use it.
func (o *Observer) Source() *Source { return &Source{observer: o, volumes: map[string]string{}} }

// WatchEvents publishes events while there are listeners, until ctx ends.
func (o *Observer) WatchEvents(ctx context.Context) {
	w := o.Source()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.Events.Arrived():
			o.Gate.Contain("events", func() { w.run(ctx) })
		}
	}
}

// A Source publishes events about changes in the target and the proxy.
type Source struct {
	observer *Observer

	looked   bool // Look has been called at least once
	phase    target.Phase
	restarts int

	known   bool              // next is valid
	paused  bool              // there have been no listeners since the last query
	next    uint64            // number of the next notification
	asOf    int               // number of restarts when next was read
	volumes map[string]string // names (LVSTORE/LVOL) of volumes, by UUID
	former  map[string]string // volumes as of the read before the last read
}

func (w *Source) run(ctx context.Context) {
	w.Pause()
	tick := time.NewTicker(eventPoll)
	defer tick.Stop()
	var conditions time.Time
	for left := time.Now(); ; {
		w.Look(ctx)
		if time.Since(conditions) >= conditionPoll {
			w.LookAtConditions(ctx)
			conditions = time.Now()
		}
		if w.observer.Events.Listeners() > 0 {
			left = time.Now()
		} else if time.Since(left) > eventLinger {
			return
		}
		select {
		case <-tick.C:
		case <-w.observer.Events.Arrived():
		case <-ctx.Done():
			return
		}
	}
}

// Look publishes changes in the target's state, and the target's notifications since the last call.
func (w *Source) Look(ctx context.Context) {
	w.lookAtTarget(ctx)
	w.readNotifications(ctx)
}

// Pause records that there have been no listeners since the last query.
func (w *Source) Pause() { w.paused = true }

// lookAtTarget publishes changes in the target's state.
func (w *Source) lookAtTarget(ctx context.Context) {
	hub, state := w.observer.Events, w.observer.Gate.Target.State()
	if !w.looked {
		probing, cancel := context.WithTimeout(ctx, probeWait)
		state, _ = w.observer.Gate.Target.Probe(probing)
		cancel()
		w.looked, w.restarts = true, state.Reconnects
	}
	restarted := state.Reconnects > w.restarts
	if state.Phase == w.phase && !restarted {
		return
	}
	w.phase, w.restarts = state.Phase, state.Reconnects
	switch state.Phase {
	case target.Unreachable:
		hub.End(startupKey, events.Event{Type: "target_down", Object: "target", Text: "the target stopped during its startup"})
		hub.Begin(targetDownKey, events.Event{Type: "target_down", Object: "target", Text: fmt.Sprintf("the target does not respond: %v", state.Err)})
	case target.Startup:
		hub.End(targetDownKey, events.Event{Type: "target_up", Object: "target", Text: "the target answers"})
		hub.Begin(startupKey, events.Event{Type: "target_startup", Object: "target", Text: "the target waits for framework_start_init"})
	case target.Runtime:
		up := events.Event{Type: "target_up", Object: "target", Text: fmt.Sprintf("the target is running SPDK %s", state.Release)}
		if restarted {
			up.Type, up.Text = "target_restarted", fmt.Sprintf("the target was restarted, and is running SPDK %s", state.Release)
		}
		before := len(hub.Lasting())
		hub.End(targetDownKey, up)
		hub.End(startupKey, up)
		if restarted && len(hub.Lasting()) == before { // the target was restarted between two polls
			hub.Publish(up)
		}
	}
}

// readNotifications publishes the target's notifications since the last call.
func (w *Source) readNotifications(ctx context.Context) {
	o := w.observer
	if w.phase != target.Runtime {
		return
	}
	conn, err := o.Gate.Target.Connect(ctx, "")
	if err != nil {
		return
	}
	restarted := w.known && w.asOf != w.restarts
	if restarted { // the new process numbers its notifications from 0, and may have none yet
		w.known, w.next = false, 0
	}
	ask := execute.Command{Conn: conn, Timeout: o.Gate.Timeout}.Ask
	for range 10 { // the next poll reads further notifications
		params := map[string]any{"id": w.next, "max": uint64(notificationsAtOnce)}
		if !w.known {
			params = nil
		}
		var list []spdkrpc.NotifyEvent
		raw, err := ask(ctx, web.NotificationsMethod, params)
		if err != nil || json.Unmarshal(raw, &list) != nil {
			return
		}
		last := w.next
		if n := len(list); n > 0 {
			last = list[n-1].ID + 1
		}
		skip := !w.known || w.paused
		if restarted && !w.known && last > 0 {
			o.Events.Publish(events.Event{Type: events.Gap, Text: fmt.Sprintf("%d notifications of the restarted target were sent before the proxy could read them", last)})
		} else if n := last - w.next; w.known && w.paused && n > 0 {
			o.Events.Publish(events.Event{Type: events.Gap, Text: fmt.Sprintf("at least %d notifications of the target were sent while there were no listeners", n)})
		} else if len(list) > 0 && !skip && list[0].ID > w.next {
			o.Events.Publish(events.Event{Type: events.Gap, Text: fmt.Sprintf("%d notifications of the target were lost: it keeps only the last ones", list[0].ID-w.next)})
		}
		w.next, w.known, w.asOf = last, true, w.restarts
		full := len(list) >= notificationsAtOnce
		if !skip {
			w.publish(ctx, ask, list)
		}
		if !full {
			w.paused = false
			return
		}
	}
}

// publish adds notifications to the events, with the names of volumes as far as they are known.
func (w *Source) publish(ctx context.Context, ask func(context.Context, string, map[string]any) (json.RawMessage, error), list []spdkrpc.NotifyEvent) {
	resolved := 0
	for _, n := range list {
		e := events.Event{Type: n.Type, Object: n.Ctx, Text: "SPDK reports " + n.Type + " of " + n.Ctx, Scope: events.Scope{Kind: "bdev", Name: n.Ctx, Target: true}}
		verb := map[string]string{"bdev_register": "was added", "bdev_unregister": "was removed", "bdev_resize": "was resized"}[n.Type]
		if verb == "" {
			e.Scope.Name = "" // the name may belong to an object other than a bdev
			w.observer.Events.Publish(e)
			continue
		}
		e.Text = fmt.Sprintf("bdev %s %s", n.Ctx, verb)
		if uuid.Validate(n.Ctx) == nil {
			if w.name(n.Ctx) == "" && n.Type != "bdev_unregister" && resolved < resolvedAtOnce {
				resolved++
				w.resolve(ctx, ask, n.Ctx)
			}
			e.Scope.Name = "" // a UUID does not identify the owner
			if name := w.name(n.Ctx); name != "" {
				e.Object, e.Scope.Name, e.Text = name, name, fmt.Sprintf("volume %s (%s) %s", name, n.Ctx, verb)
			}
		}
		w.observer.Events.Publish(e)
	}
}

func (w *Source) name(id string) string {
	if name := w.volumes[id]; name != "" {
		return name
	}
	return w.former[id]
}

// resolve looks up the name of a volume.
func (w *Source) resolve(ctx context.Context, ask func(context.Context, string, map[string]any) (json.RawMessage, error), id string) {
	var list []struct {
		Aliases []string       `json:"aliases"`
		Driver  map[string]any `json:"driver_specific"`
	}
	raw, err := ask(ctx, "bdev_get_bdevs", map[string]any{"name": id})
	if err != nil || json.Unmarshal(raw, &list) != nil || len(list) != 1 {
		return
	}
	if _, lvol := list[0].Driver["lvol"]; lvol && len(list[0].Aliases) > 0 {
		w.volumes[id] = list[0].Aliases[0]
	}
}

// LookAtConditions checks the lasting conditions, and begins or ends them.
func (w *Source) LookAtConditions(ctx context.Context) {
	o := w.observer
	read, err := o.figures.Latest(ctx)
	if err != nil {
		return
	}
	wanted := map[string]events.Event{}
	hub := o.Events
	lasting := hub.Lasting()
	limit := func(key string) float64 {
		if slices.Contains(lasting, key) {
			return noLongerFull
		}
		return nearlyFull
	}
	for which, at := range o.Expiries() {
		w.expiry(wanted, "the certificate "+which, which, at)
	}
	for user, at := range o.Gate.Settings().TokensExpire {
		w.expiry(wanted, "a token of user "+user, "token of "+user, at)
	}
	if read.Up {
		w.former, w.volumes = w.volumes, make(map[string]string, len(read.Volumes))
		for i := range read.Volumes {
			v := &read.Volumes[i]
			w.volumes[v.UUID] = v.Store + "/" + v.Name
		}
		for _, store := range read.Stores {
			key := "lvstore_full " + store.Name
			if used := 1 - float64(store.Free)/float64(max(1, store.Clusters)); used >= limit(key) {
				wanted[key] = events.Event{Type: "lvstore_full", Object: store.Name, Scope: events.Scope{Kind: "lvstore", Name: store.Name},
					Text: fmt.Sprintf("lvstore %s is %.0f %% full: %d MiB are free", store.Name, 100*used, store.FreeBytes()>>20)}
			}
		}
		w.quotas(wanted, limit, read)
	}
	for key, e := range wanted {
		hub.Begin(key, e)
	}
	for _, key := range lasting {
		kind, object, _ := strings.Cut(key, " ")
		_, still := wanted[key]
		if still || key == targetDownKey || key == startupKey || !read.Up && kind != "certificate_expires" {
			continue
		}
		scope := events.Scope{Kind: "lvstore", Name: object}
		switch kind {
		case "quota_near":
			scope.Kind = "tenant"
		case "certificate_expires":
			scope = events.Scope{}
		}
		hub.End(key, events.Event{Type: kind + "_over", Object: object, Text: strings.ReplaceAll(kind, "_", " ") + " no longer: " + object, Scope: scope})
	}
}

func (w *Source) expiry(wanted map[string]events.Event, subject, object string, at time.Time) {
	left := time.Until(at)
	if at.IsZero() || left > expiresSoon {
		return
	}
	text := fmt.Sprintf("%s expires on %s", subject, at.UTC().Format(time.RFC3339))
	if left <= 0 {
		text = fmt.Sprintf("%s expired on %s", subject, at.UTC().Format(time.RFC3339))
	}
	wanted["certificate_expires "+object] = events.Event{Type: "certificate_expires", Object: object, Text: text}
}

// quotas adds events for tenants that have nearly exhausted their quotas. It takes the usage from
// the figures, which do not show who created a subsystem.
func (w *Source) quotas(wanted map[string]events.Event, limit func(key string) float64, read *figures.Figures) {
	for _, scope := range w.observer.Gate.Settings().Tenancy.Scopes() {
		var size uint64
		var count int
		for i := range read.Volumes {
			if v := &read.Volumes[i]; scope.Owns("lvstore", v.Store) {
				size += v.Size
				count++
			}
		}
		key := "quota_near " + scope.Name
		event := events.Event{Type: "quota_near", Object: scope.Name, Scope: events.Scope{Kind: "tenant", Name: scope.Name}}
		if q := scope.Quota.Bytes; q > 0 && float64(size) >= limit(key)*float64(q) {
			event.Text = fmt.Sprintf("tenant %s uses %d of %d GiB of its quota", scope.Name, size/bytesInGiB, q/bytesInGiB)
			wanted[key] = event
		} else if q := scope.Quota.Volumes; q > 0 && float64(count) >= limit(key)*float64(q) {
			event.Text = fmt.Sprintf("tenant %s uses %d of %d volumes of its quota", scope.Name, count, q)
			wanted[key] = event
		}
	}
}
