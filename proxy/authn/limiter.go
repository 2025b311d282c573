package authn

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"sync"
	"time"
)

// A limiter limits the rate of failed logins. It has a token bucket for each pair of source and
// user name, and a larger bucket for each source, which limits attempts with many names. User names
// that do not exist are treated like those that do.
type limiter struct {
	perSecond float64
	burst     float64
	now       func() time.Time
	seed      maphash.Seed

	mu      sync.Mutex
	buckets map[bucketKey]bucket
}

type bucketKey struct {
	source netip.Prefix
	name   uint64 // hash of the name, so that long names need no extra memory; 0 means all names
}

type bucket struct {
	tokens float64
	at     time.Time
}

const (
	maxBuckets    = 8192
	sourceFactor  = 4 // ratio of the size of a source's bucket to that of a user's
	failuresBurst = 10
)

func newLimiter(perMinute int, now func() time.Time) *limiter {
	return &limiter{
		perSecond: float64(perMinute) / 60, burst: failuresBurst, now: now,
		seed: maphash.MakeSeed(), buckets: map[bucketKey]bucket{},
	}
}

// take reserves an attempt. If none is left, it returns how long to wait.
func (l *limiter) take(source netip.Addr, name string) (wait time.Duration) {
	user, all := l.keys(source, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	a, b := l.refilled(user, l.size(user), now), l.refilled(all, l.size(all), now)
	if short := max(1-a.tokens, 1-b.tokens); short > 0 {
		return time.Duration(short/l.perSecond*float64(time.Second)).Truncate(time.Second) + time.Second
	}
	a.tokens--
	b.tokens--
	l.makeRoom(now)
	l.buckets[user], l.buckets[all] = a, b
	return 0
}

// forget resets the attempts with this user name from all sources.
func (l *limiter) forget(name string) {
	user, _ := l.keys(netip.Addr{}, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.buckets, func(key bucketKey, _ bucket) bool { return key.name == user.name })
}

// refund returns the token of an attempt that did not fail.
func (l *limiter) refund(source netip.Addr, name string) {
	user, all := l.keys(source, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range []bucketKey{user, all} {
		if b, ok := l.buckets[key]; ok {
			b.tokens++
			l.buckets[key] = b
		}
	}
}

func (l *limiter) keys(source netip.Addr, name string) (user, all bucketKey) {
	prefix := networkOf(source)
	return bucketKey{prefix, maphash.String(l.seed, name) | 1}, bucketKey{source: prefix}
}

// size returns the number of tokens in a full bucket.
func (l *limiter) size(key bucketKey) float64 {
	if key.name == 0 {
		return sourceFactor * l.burst
	}
	return l.burst
}

func (l *limiter) refilled(key bucketKey, size float64, now time.Time) bucket {
	b, ok := l.buckets[key]
	if !ok {
		return bucket{tokens: size, at: now}
	}
	return bucket{tokens: min(size, b.tokens+now.Sub(b.at).Seconds()*l.perSecond), at: now}
}

// makeRoom removes full buckets, and then arbitrary buckets until a quarter of the space is free.
// This limits the memory and time that an attack can consume.
func (l *limiter) makeRoom(now time.Time) {
	if len(l.buckets) < maxBuckets {
		return
	}
	for key := range l.buckets {
		if size := l.size(key); l.refilled(key, size, now).tokens >= size {
			delete(l.buckets, key)
		}
	}
	for key := range l.buckets {
		if len(l.buckets) <= maxBuckets*3/4 {
			return
		}
		delete(l.buckets, key)
	}
}
