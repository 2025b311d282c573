package events

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// An Event describes something that happened. Clients receive events as JSON.
type Event struct {
	// ID increases with every event, even across restarts of the proxy. It has at most 53 bits, so
	// that JavaScript can represent it exactly.
	ID     uint64    `json:"id"`
	Time   time.Time `json:"time"`
	Type   string    `json:"type"`
	Object string    `json:"object"`
	Text   string    `json:"text"`

	Scope Scope `json:"-"`
}

// A Scope identifies the object of an event. Callers use it to decide who may see the event.
type Scope struct {
	Kind   string // bdev, lvstore or tenant; "" means the target or the proxy as a whole
	Name   string // used to find the owner; "" means unknown
	Target bool   // the event is an SPDK notification
}

// Gap is the type of the event that replaces events dropped by the Hub.
const Gap = "gap"

// A Hub keeps events and delivers them to listeners. It is safe for concurrent use.
type Hub struct {
	kept int

	mu        sync.Mutex
	first     uint64 // ID of ring[0], or of the next event if ring is empty
	ring      []Event
	lasting   map[string]Event // conditions that have begun but not ended
	changed   chan struct{}    // closed by the next event or by Wake
	listeners int
	arrived   chan struct{} // receives a value when a listener subscribes
}

// idBits is the number of bits in an ID that distinguish the events of one process. The upper bits
// contain the start time of the process, in seconds.
const idBits = 20

// New returns a Hub that keeps at most kept events.
func New(kept int) *Hub {
	return &Hub{
		kept: kept, first: uint64(time.Now().Unix()) << idBits, lasting: map[string]Event{},
		changed: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
}

// Publish adds an event, and sets its ID and time.
func (h *Hub) Publish(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.publish(e)
}

func (h *Hub) publish(e Event) Event {
	e.ID, e.Time = h.first+uint64(len(h.ring)), time.Now().UTC().Truncate(time.Millisecond)
	h.ring = append(h.ring, e)
	if over := len(h.ring) - h.kept; over > 0 {
		h.ring = slices.Delete(h.ring, 0, over)
		h.first += uint64(over)
	}
	h.wake()
	return e
}

func (h *Hub) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Begin publishes an event about the beginning of a lasting condition, unless the condition has
// already begun. Until End is called, new listeners receive this event first.
func (h *Hub) Begin(key string, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, lasts := h.lasting[key]; !lasts {
		h.lasting[key] = h.publish(e)
	}
}

// End ends a condition. If the condition had begun, End publishes e, which reports its end.
func (h *Hub) End(key string, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, lasts := h.lasting[key]; lasts {
		delete(h.lasting, key)
		h.publish(e)
	}
}

// Lasting returns the keys of the current lasting conditions.
func (h *Hub) Lasting() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.lasting))
}

// Wake wakes all listeners, so that they check whether they may still listen.
func (h *Hub) Wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake()
}

// Listeners returns the number of listeners.
func (h *Hub) Listeners() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.listeners
}

// Arrived returns a channel that receives a value when a listener subscribes.
func (h *Hub) Arrived() <-chan struct{} { return h.arrived }

// A Listener receives a Hub's events in order. It is not safe for concurrent use.
type Listener struct {
	hub   *Hub
	next  uint64
	first []Event // events to deliver first
	once  sync.Once
}

// Subscribe returns a listener for events with an ID greater than after. If after is 0, the
// listener receives the lasting conditions first, and then new events. The caller must Close the
// listener.
func (h *Hub) Subscribe(after uint64) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners++
	select {
	case h.arrived <- struct{}{}:
	default:
	}
	end := h.first + uint64(len(h.ring))
	l := &Listener{hub: h, next: after + 1}
	switch {
	case after == 0:
		l.next = end
		l.first = slices.SortedFunc(maps.Values(h.lasting), func(a, b Event) int { return int(int64(a.ID) - int64(b.ID)) })
	case l.next > end: // the clock was ahead when this ID was created
		l.next, l.first = end, []Event{gap(end-1, "the proxy does not know the event after which this listener continues: what happened before now may be missing")}
	}
	return l
}

func gap(id uint64, text string) Event {
	return Event{ID: id, Time: time.Now().UTC().Truncate(time.Millisecond), Type: Gap, Text: text}
}

// Take returns the events since the previous Take, and a channel that is closed when there may be
// more.
func (l *Listener) Take() (events []Event, more <-chan struct{}) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	events, l.first = l.first, nil
	if l.next < h.first {
		missing := "events before this one are no longer known"
		if n := h.first - l.next; n < 1<<idBits {
			missing = fmt.Sprintf("%d events are no longer known", n)
		}
		events = append(events, gap(h.first-1, missing))
		l.next = h.first
	}
	events = append(events, h.ring[l.next-h.first:]...)
	l.next = h.first + uint64(len(h.ring))
	return events, h.changed
}

// Close ends the listener. Closing it again has no effect.
func (l *Listener) Close() {
	l.once.Do(func() {
		h := l.hub
		h.mu.Lock()
		defer h.mu.Unlock()
		h.listeners--
	})
}
