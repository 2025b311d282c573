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
	of sync.Map // sizeKey → *atomic.Int64; methods with long answers only
}

type sizeKey struct {
	method string
	params bool
}

func (s *sizes) expect(method string, params map[string]any) int {
	if n, ok := s.of.Load(sizeKey{method, params != nil}); ok {
		return int(n.(*atomic.Int64).Load())
	}
	return 0
}

// seen notes an answer. Shorter ones are believed slowly.
func (s *sizes) seen(method string, params map[string]any, size int) {
	key := sizeKey{method, params != nil}
	known, ok := s.of.Load(key)
	if !ok {
		if size < longReply {
			return
		}
		known, _ = s.of.LoadOrStore(key, new(atomic.Int64))
	}
	n := known.(*atomic.Int64)
	n.Store(max(int64(size), n.Load()*7/8)) // one of several at once counts, whichever
}
