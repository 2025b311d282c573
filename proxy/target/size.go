package target

import (
	"sync"
	"sync/atomic"
)

// longReply is where the memory that an answer takes is worth counting.
const longReply = 64 << 10

// sizes remember how long answers were, to tell how long the next will be: of a
// method with parameters, which often name one thing, and without.
type sizes struct {
	of sync.Map // sizeKey → *size
}

type sizeKey struct {
	method string
	params bool
}

func (s *sizes) find(method string, params map[string]any) *size {
	key := sizeKey{method, params != nil}
	known, ok := s.of.Load(key)
	if !ok {
		known, _ = s.of.LoadOrStore(key, new(size))
	}
	return known.(*size)
}

// A size is how many bytes a call's answer may have. It changes while the call
// waits for a slot.
type size struct{ bytes atomic.Int64 }

func (s *size) expected() int { return int(s.bytes.Load()) }

// seen notes an answer. Shorter ones are believed slowly.
func (s *size) seen(n int) {
	known := s.expected()
	if n < longReply {
		n = 0
	}
	if n = max(n, known*7/8); n != known {
		s.bytes.Store(int64(n)) // one of several at once counts, whichever
	}
}
