package events

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A gap event reports how many events are missing, if known. Its ID immediately precedes the next
// event's ID, so that a listener that resumes after the gap misses nothing.
func TestLostEventsAreReportedAsGaps(t *testing.T) {
	h := New(2)
	publish(h, 0, 1)
	l := subscribe(t, h, 0)
	publish(h, 1, 4)
	events, _ := l.Take()
	require.Len(t, events, 3)
	assert.Equal(t, Gap, events[0].Type)
	assert.Equal(t, "1 events are no longer known", events[0].Text)
	assert.Equal(t, events[1].ID-1, events[0].ID)
	assert.Equal(t, []string{"2", "3"}, take(t, subscribe(t, h, events[0].ID)), "after the gap")

	old, _ := subscribe(t, h, 1).Take()
	assert.Equal(t, "events before this one are no longer known", old[0].Text, "of an earlier process")
	assert.Equal(t, events[1].ID-1, old[0].ID)

	last := events[2].ID
	assert.Empty(t, take(t, subscribe(t, h, last)))
	ahead, _ := subscribe(t, h, last+1).Take()
	require.Len(t, ahead, 1)
	assert.Equal(t, Event{ID: last, Time: ahead[0].Time, Type: Gap, Text: ahead[0].Text}, ahead[0])
	publish(h, 4, 5)
	assert.Equal(t, []string{"4"}, take(t, subscribe(t, h, ahead[0].ID)))
}

// Lasting conditions are delivered in the order in which they began.
func TestOngoingConditionsKeepTheirOrder(t *testing.T) {
	h := New(10)
	for _, key := range []string{"c", "a", "d", "b"} {
		h.Begin(key, Event{Type: key})
	}
	assert.Equal(t, []string{"c", "a", "d", "b"}, take(t, subscribe(t, h, 0)))
}
