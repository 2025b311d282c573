package events

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func take(t *testing.T, l *Listener) (texts []string) {
	events, _ := l.Take()
	for _, e := range events {
		texts = append(texts, e.Type)
	}
	return texts
}

func subscribe(t *testing.T, h *Hub, after uint64) *Listener {
	l := h.Subscribe(after)
	t.Cleanup(l.Close)
	return l
}

func publish(h *Hub, from, to int) {
	for i := from; i < to; i++ {
		h.Publish(Event{Type: fmt.Sprint(i)})
	}
}

func TestListenersReceiveEventsInOrder(t *testing.T) {
	h := New(4)
	publish(h, 0, 2)
	l := subscribe(t, h, 0)
	assert.Empty(t, take(t, l), "new ones only")
	publish(h, 2, 5)
	assert.Equal(t, []string{"2", "3", "4"}, take(t, l))
	assert.Empty(t, take(t, l))
	publish(h, 5, 15)
	assert.Equal(t, []string{Gap, "11", "12", "13", "14"}, take(t, l), "a slow listener learns that it missed some")
	events, more := l.Take()
	assert.Empty(t, events)
	h.Publish(Event{})
	<-more
}

func TestListenersResumeAfterAnEvent(t *testing.T) {
	h := New(4)
	l := subscribe(t, h, 0)
	publish(h, 0, 1)
	events, _ := l.Take()
	seen := events[0].ID
	publish(h, 1, 3)
	assert.Equal(t, []string{"1", "2"}, take(t, subscribe(t, h, seen)))
	publish(h, 3, 5)
	assert.Equal(t, []string{"1", "2", "3", "4"}, take(t, subscribe(t, h, seen)), "the ring still has the next one")
	publish(h, 5, 6)
	assert.Equal(t, []string{Gap, "2", "3", "4", "5"}, take(t, subscribe(t, h, seen)))
	assert.Equal(t, []string{Gap, "2", "3", "4", "5"}, take(t, subscribe(t, h, 1)), "of an earlier process")
	ahead := subscribe(t, h, seen+1<<40)
	assert.Equal(t, []string{Gap}, take(t, ahead))
	publish(h, 6, 7)
	assert.Equal(t, []string{"6"}, take(t, ahead))
	latest, _ := subscribe(t, h, 1).Take()
	text, err := json.Marshal(latest[len(latest)-1])
	require.NoError(t, err)
	assert.Regexp(t, `^\{"id":\d+,"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z","type":"6","object":"","text":""\}$`, string(text))
	assert.Less(t, latest[len(latest)-1].ID, uint64(1)<<53, "JavaScript reads it exactly")
}

func TestNewListenersReceiveOngoingConditionsFirst(t *testing.T) {
	h := New(10)
	l := subscribe(t, h, 0)
	h.Begin("b", Event{Type: "full-b"})
	h.Begin("a", Event{Type: "full-a"})
	h.Begin("b", Event{Type: "full-b"})
	assert.Equal(t, []string{"full-b", "full-a"}, take(t, l), "once")
	assert.Equal(t, []string{"full-b", "full-a"}, take(t, subscribe(t, h, 0)))
	assert.Equal(t, []string{"a", "b"}, h.Lasting())
	h.End("b", Event{Type: "free-b"})
	h.End("c", Event{Type: "free-c"})
	assert.Equal(t, []string{"free-b"}, take(t, l))
	assert.Equal(t, []string{"full-a"}, take(t, subscribe(t, h, 0)))
}

func TestListenersAreCounted(t *testing.T) {
	h := New(1)
	first := subscribe(t, h, 0)
	subscribe(t, h, 0)
	first.Close()
	first.Close()
	assert.Equal(t, 1, h.Listeners())
	<-h.Arrived()
}

func TestListenersWakeForNewEvents(t *testing.T) {
	h := New(1)
	l := subscribe(t, h, 0)
	_, more := l.Take()
	h.Wake()
	<-more
	assert.Empty(t, take(t, l))
}
