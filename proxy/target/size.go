package target

import (
	"sync"
	"sync/atomic"
)

// longReply is the minimum length, in bytes, of responses that count against memory limits.
const longReply = 64 << 10

// sizes predicts the length of responses from earlier responses. It distinguishes calls with and
// without parameters, because parameters often select one object.
type sizes struct {
	byKey sync.Map // sizeKey → *size
}

type sizeKey struct {
	method string
	params bool
}

func (s *sizes) find(method string, params map[string]any) *size {
	key := sizeKey{method, params != nil}
	known, ok := s.byKey.Load(key)
	if !ok {
		known, _ = s.byKey.LoadOrStore(key, new(size))
	}
	return known.(*size)
}

// A size is the expected length of a call's response, in bytes. It may change while the call waits
// for a slot.
type size struct{ bytes atomic.Int64 }

func (s *size) expected() int { return int(s.bytes.Load()) }

// note updates the expected length after a response of n bytes. If the response was longer than
// expected, n becomes the expected length; if it was shorter, the expected length decreases to n,
// but by at most an eighth.
func (s *size) note(n int) {
	known := s.expected()
	if n < longReply {
		n = 0
	}
	if n = max(n, known*7/8); n != known {
		// if several calls end concurrently, the result may be that of any of them
		s.bytes.Store(int64(n))
	}
}
