package session

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var limits = Limits{Idle: 30 * time.Minute, Lifetime: 12 * time.Hour}

func newStore() (*Store[int], *clock) {
	c := &clock{at: time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)}
	return New[int](limits, c.now), c
}

func TestSessionIsFoundOnlyByItsID(t *testing.T) {
	s, c := newStore()
	id, began := s.Begin("ann", 7, time.Time{})
	other, second := s.Begin("ann", 8, time.Time{})
	assert.NotEqual(t, id, other, "each session has an id of its own")
	assert.NotEqual(t, began.CSRF, second.CSRF)
	assert.Len(t, id, 43, "256 bits")
	found, ok := s.Find(id)
	require.True(t, ok)
	assert.Equal(t, began, found)
	assert.Equal(t, "ann", found.User)
	assert.Equal(t, 7, found.Value)
	assert.Equal(t, c.now().Add(limits.Lifetime), found.Ends)
	assert.NotContains(t, id, found.Name)
	swapped := "A" + id[1:]
	if swapped == id {
		swapped = "B" + id[1:]
	}
	for _, wrong := range []string{"", id[1:], id + "A", swapped, found.Name, string(found.sum[:])} {
		_, ok = s.Find(wrong)
		assert.False(t, ok, wrong)
	}
	// The Store's memory contains neither the id nor the CSRF token.
	for key, e := range s.sessions {
		kept := fmt.Sprintf("%s %+v", key, *e)
		assert.NotContains(t, kept, id)
		assert.NotContains(t, kept, began.CSRF)
	}
}

func TestUnusedSessionEnds(t *testing.T) {
	s, c := newStore()
	id, _ := s.Begin("ann", 0, time.Time{})
	for range 3 {
		c.pass(limits.Idle - time.Second)
		found, ok := s.Find(id)
		require.True(t, ok)
		s.Use(found)
	}
	c.pass(limits.Idle - time.Second)
	_, ok := s.Find(id)
	require.True(t, ok, "a lookup does not count as a use")
	c.pass(time.Second)
	_, ok = s.Find(id)
	assert.False(t, ok)
	c.pass(-limits.Idle)
	_, ok = s.Find(id)
	assert.False(t, ok, "an ended session does not return")
}

func TestSessionEndsAfterItsLifetime(t *testing.T) {
	s, c := newStore()
	id, _ := s.Begin("ann", 0, time.Time{})
	short, began := s.Begin("ann", 0, c.now().Add(time.Hour))
	assert.Equal(t, c.now().Add(time.Hour), began.Ends)
	use := func(id string) bool {
		found, ok := s.Find(id)
		s.Use(found)
		return ok
	}
	for range 24 {
		c.pass(limits.Idle - time.Minute)
		require.True(t, use(id))
		assert.Equal(t, c.now().Before(began.Ends), use(short), "the value counts until then")
	}
	c.pass(limits.Lifetime - 24*(limits.Idle-time.Minute) - time.Second)
	require.True(t, use(id))
	c.pass(time.Second)
	assert.False(t, use(id))
	assert.Zero(t, s.Count())
}

// SetLimits also applies to existing sessions.
func TestNewLimitsApplyToOpenSessions(t *testing.T) {
	s, c := newStore()
	id, _ := s.Begin("ann", 0, time.Time{})
	c.pass(10 * time.Minute)
	s.SetLimits(Limits{Idle: 5 * time.Minute, Lifetime: time.Hour})
	_, ok := s.Find(id)
	assert.False(t, ok)
}

func TestEndedSessionsAreNotFound(t *testing.T) {
	s, _ := newStore()
	id, began := s.Begin("ann", 0, time.Time{})
	others := []string{}
	for range 3 {
		id, _ := s.Begin("ann", 0, time.Time{})
		others = append(others, id)
	}
	bob, _ := s.Begin("bob", 0, time.Time{})
	s.End(began)
	_, ok := s.Find(id)
	assert.False(t, ok)
	s.Use(began)
	_, ok = s.Find(id)
	assert.False(t, ok, "a running request does not revive the session")
	assert.Equal(t, 4, s.Count())
	assert.Zero(t, s.EndAll("ann", func(value int) bool { return value > 0 }))
	assert.Equal(t, 3, s.EndAll("ann", nil))
	for _, id := range others {
		_, ok := s.Find(id)
		assert.False(t, ok)
	}
	_, ok = s.Find(bob)
	assert.True(t, ok)
	s.Clear()
	_, ok = s.Find(bob)
	assert.False(t, ok)
}

// The number of sessions is limited per user and in total. If a user begins too many sessions, only
// that user's sessions end.
func TestNumberOfSessionsIsLimited(t *testing.T) {
	s, c := newStore()
	first, _ := s.Begin("ann", 0, time.Time{})
	kept, _ := s.Begin("ann", 0, time.Time{})
	bob, _ := s.Begin("bob", 0, time.Time{})
	c.pass(time.Second)
	found, _ := s.Find(kept)
	s.Use(found)
	for range MaxPerUser - 1 {
		s.Begin("ann", 0, time.Time{})
	}
	assert.Equal(t, MaxPerUser+1, s.Count())
	_, ok := s.Find(first)
	assert.False(t, ok, "the one that was not used for longest has ended")
	for _, id := range []string{kept, bob} {
		_, ok = s.Find(id)
		assert.True(t, ok)
	}
	c.pass(time.Second)
	var second string
	for i := range MaxSessions - 2 {
		id, _ := s.Begin(fmt.Sprint("user", i), 0, time.Time{})
		if i == 0 {
			second = id
			c.pass(time.Second)
		}
	}
	assert.Equal(t, MaxSessions, s.Count())
	_, ok = s.Find(bob)
	assert.True(t, ok, "users with more sessions lose theirs first")
	s.Begin("eve", 0, time.Time{})
	_, ok = s.Find(bob)
	assert.False(t, ok, "if all users have one session, the one that was not used for longest has ended")
	_, ok = s.Find(second)
	assert.True(t, ok)
}

func TestSessionsAreSafeForConcurrentUse(t *testing.T) {
	s, _ := newStore()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			user := fmt.Sprint("user", i%2)
			for range 100 {
				id, _ := s.Begin(user, i, time.Time{})
				if found, ok := s.Find(id); ok {
					s.Use(found)
					s.End(found)
				}
			}
			s.EndAll(user, nil)
		})
	}
	all.Wait()
	assert.Zero(t, s.Count())
}
