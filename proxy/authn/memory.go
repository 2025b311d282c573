package authn

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"
)

// A mac is an HMAC of credentials. Its key is random and known only to this process, so that a copy
// of the cache is useless elsewhere.
type mac [sha256.Size]byte

// pool contains *macState values, initialized with the key
type macer struct{ pool sync.Pool } // pool contains *macState, initialized with the key

func newMacer() *macer {
	key := random(sha256.Size)
	return &macer{sync.Pool{New: func() any { return &macState{hash: hmac.New(sha256.New, key)} }}}
}

// sumOf returns the mac of several strings. The lengths of the strings are included, so that the
// macs of "ab", "c" and "a", "bc" differ.
func sumOf[T string | []byte](s *macer, method Method, texts ...T) mac {
	m := s.pool.Get().(*macState)
	defer s.pool.Put(m)
	m.hash.Reset()
	m.text = append(append(m.text[:0], method...), 0)
	for _, t := range texts {
		m.text = binary.BigEndian.AppendUint32(m.text, uint32(len(t)))
		m.text = append(m.text, t...)
	}
	m.hash.Write(m.text)
	clear(m.text) // do not keep a password in memory longer than needed
	m.sum = m.hash.Sum(m.sum[:0])
	return mac(m.sum)
}

// macState is the reusable state for computing an HMAC.
type macState struct {
	hash      hash.Hash
	text, sum []byte
}

// maxRemembered is the maximum number of entries in a memory.
const maxRemembered = 4096

// A memory caches verified credentials and their users for a limited time. It never caches
// failures.
type memory struct {
	now func() time.Time

	mu    sync.RWMutex
	known map[mac]remembered
}

type remembered struct {
	who   Identity
	until time.Time
}

func newMemory(now func() time.Time) *memory { return &memory{now: now, known: map[mac]remembered{}} }

func (m *memory) recall(sum mac) (Identity, bool) {
	m.mu.RLock()
	r, ok := m.known[sum]
	m.mu.RUnlock()
	return r.who, ok && m.now().Before(r.until)
}

func (m *memory) keep(sum mac, who Identity, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxRemembered {
		m.makeRoom()
	}
	m.known[sum] = remembered{who, until}
}

// makeRoom removes expired entries, and then arbitrary entries until a quarter of the space is
// free. Removed credentials are verified again when they are next used.
func (m *memory) makeRoom() {
	now := m.now()
	for sum, r := range m.known {
		if !now.Before(r.until) {
			delete(m.known, sum)
		}
	}
	for sum := range m.known {
		if len(m.known) <= maxRemembered*3/4 {
			return
		}
		delete(m.known, sum)
	}
}
