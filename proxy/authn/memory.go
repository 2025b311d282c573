package authn

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"sync"
	"time"
)

// A mac is an HMAC of credentials under a key of this process alone: what is in
// memory is of no use elsewhere.
type mac [sha256.Size]byte

// A summer computes macs.
type summer struct{ pool sync.Pool } // of *macState, keyed

func newSummer() *summer {
	key := random(sha256.Size)
	return &summer{sync.Pool{New: func() any { return &macState{hash: hmac.New(sha256.New, key)} }}}
}

// sumOf is the mac of some texts; their lengths keep different splits of the same
// text apart.
func sumOf[T string | []byte](s *summer, method Method, texts ...T) mac {
	m := s.pool.Get().(*macState)
	defer s.pool.Put(m)
	m.hash.Reset()
	m.text = append(append(m.text[:0], method...), 0)
	for _, t := range texts {
		m.text = binary.BigEndian.AppendUint32(m.text, uint32(len(t)))
		m.text = append(m.text, t...)
	}
	m.hash.Write(m.text)
	clear(m.text) // a password lies about no longer than it must
	m.sum = m.hash.Sum(m.sum[:0])
	return mac(m.sum)
}

// macState is what computing an HMAC takes, kept for the next.
type macState struct {
	hash      hash.Hash
	text, sum []byte
}

// maxRemembered bounds a memory.
const maxRemembered = 4096

// A memory holds who was recognised by what, for a time. Failures are never
// remembered.
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

// makeRoom forgets what is over, and then just anything: it costs a check.
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
