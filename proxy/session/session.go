package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"
)

// Limits contains the limits on the sessions in a Store.
type Limits struct {
	Idle     time.Duration // maximum time without use
	Lifetime time.Duration // maximum duration of a session
}

const (
	MaxSessions = 1024 // maximum number of sessions in a Store
	MaxPerUser  = 32   // maximum number of sessions per user in a Store

	idBytes = 32
)

// A sum is the hash of a session's id. The Store does not keep ids, so that an attacker with a copy
// of its memory cannot take over a session.
type sum [sha256.Size]byte

// A Session describes a session at the time of the look-up.
type Session[T any] struct {
	User  string
	Value T         // the value passed to Begin
	Ends  time.Time // the latest time at which the session ends
	// Name identifies the session in logs. It is not secret.
	Name string
	// CSRF is the token that proves that the session's own page sent a request. It is secret.
	CSRF string

	sum sum
}

// A Store keeps sessions in memory. It is safe for concurrent use.
type Store[T any] struct {
	now func() time.Time
	key [sha256.Size]byte // key from which CSRF tokens are derived

	mu       sync.Mutex
	limits   Limits
	sessions map[sum]*entry[T]
}

type entry[T any] struct {
	user        string
	value       T
	began, used time.Time
	until       time.Time // when the value expires; zero if it does not expire
}

// New returns an empty Store. now is the clock; nil selects time.Now.
func New[T any](limits Limits, now func() time.Time) *Store[T] {
	if now == nil {
		now = time.Now
	}
	s := &Store[T]{now: now, limits: limits, sessions: map[sum]*entry[T]{}}
	_, _ = rand.Read(s.key[:]) // never fails
	return s
}

// SetLimits replaces the limits, even for existing sessions.
func (s *Store[T]) SetLimits(limits Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = limits
}

// Begin begins a session with a new id, which must be disclosed only to the user's browser. If
// until is not zero, the session ends at that time at the latest. If the user has too many
// sessions, the user's least recently used session ends. If there are too many sessions in total,
// the least recently used session of the users with the most sessions ends.
func (s *Store[T]) Begin(user string, value T, until time.Time) (id string, began Session[T]) {
	var secret [idBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	id = base64.RawURLEncoding.EncodeToString(secret[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.makeRoom(user, now)
	key := sha256.Sum256([]byte(id))
	e := &entry[T]{user: user, value: value, began: now, used: now, until: until}
	s.sessions[key] = e
	return id, s.describe(id, key, e)
}

// Find returns the session with this id, or false if there is no such session or it has ended. It
// does not mark the session as used; Use does.
func (s *Store[T]) Find(id string) (Session[T], bool) {
	if len(id) != base64.RawURLEncoding.EncodedLen(idBytes) {
		return Session[T]{}, false
	}
	// The look-up need not take constant time, because its duration could reveal only part of a
	// hash.
	key := sha256.Sum256([]byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.sessions[key]
	if ok && s.hasEnded(e, s.now()) {
		delete(s.sessions, key)
		ok = false
	}
	if !ok {
		return Session[T]{}, false
	}
	return s.describe(id, key, e), true
}

// Use marks a session as used, which postpones its idle timeout.
func (s *Store[T]) Use(session Session[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.sessions[session.sum]; ok {
		e.used = s.now()
	}
}

// End ends a session.
func (s *Store[T]) End(session Session[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session.sum)
}

// EndAll ends those of a user's sessions for whose values ends returns true, or all of the user's
// sessions if ends is nil. It returns how many sessions it has ended.
func (s *Store[T]) EndAll(user string, ends func(value T) bool) (ended int) {
	return s.endIf(func(e *entry[T]) bool { return e.user == user && (ends == nil || ends(e.value)) })
}

// Clear ends all sessions.
func (s *Store[T]) Clear() { s.endIf(func(*entry[T]) bool { return true }) }

// Count returns the number of sessions.
func (s *Store[T]) Count() int {
	now := s.now()
	s.endIf(func(e *entry[T]) bool { return s.hasEnded(e, now) })
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

func (s *Store[T]) endIf(ends func(*entry[T]) bool) (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.sessions {
		if ends(e) {
			delete(s.sessions, key)
			ended++
		}
	}
	return ended
}

// describe returns the Session for an entry. It derives the CSRF token from the id, so that the
// Store need not keep the token.
func (s *Store[T]) describe(id string, key sum, e *entry[T]) Session[T] {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte(id))
	return Session[T]{
		User: e.user, Value: e.value, Ends: s.end(e), sum: key,
		Name: hex.EncodeToString(key[:4]), CSRF: base64.RawURLEncoding.EncodeToString(mac.Sum(nil)),
	}
}

// end returns the latest time at which a session ends, however often it is used.
func (s *Store[T]) end(e *entry[T]) time.Time {
	end := e.began.Add(s.limits.Lifetime)
	if !e.until.IsZero() && e.until.Before(end) {
		return e.until
	}
	return end
}

func (s *Store[T]) hasEnded(e *entry[T], now time.Time) bool {
	return !now.Before(s.end(e)) || now.Sub(e.used) >= s.limits.Idle
}

// makeRoom ends sessions until the user may begin another. The caller must hold s.mu.
func (s *Store[T]) makeRoom(user string, now time.Time) {
	counts := map[string]int{}
	for key, e := range s.sessions {
		if s.hasEnded(e, now) {
			delete(s.sessions, key)
			continue
		}
		counts[e.user]++
	}
	if counts[user] >= MaxPerUser {
		s.endOldest(func(owner string) bool { return owner == user })
		return
	}
	if len(s.sessions) < MaxSessions {
		return
	}
	most := slices.Max(slices.Collect(maps.Values(counts)))
	s.endOldest(func(owner string) bool { return counts[owner] == most })
}

// endOldest ends the least recently used session of the users selected by mayLose.
func (s *Store[T]) endOldest(mayLose func(user string) bool) {
	var oldest *entry[T]
	var at sum
	for key, e := range s.sessions {
		if mayLose(e.user) && (oldest == nil || e.used.Before(oldest.used)) {
			oldest, at = e, key
		}
	}
	if oldest != nil {
		delete(s.sessions, at)
	}
}
