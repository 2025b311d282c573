package target

// A waiter is a call that is waiting for a slot.
type waiter struct {
	user   *user
	answer *size
	// receives nil when the call has a slot; buffered so that the sender does not block
	done       chan error
	slot       slot
	next, prev *waiter
}

// A waitList is a doubly linked list of one user's waiting calls.
type waitList struct {
	first, last *waiter
	n           int
}

func (l *waitList) push(w *waiter) {
	w.prev = l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
}

func (l *waitList) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
	l.n--
}

// A fifo is a first-in, first-out queue in a ring buffer that can grow.
type fifo[T any] struct {
	ring  []T
	first int
	n     int
}

func (f *fifo[T]) push(v T) {
	if f.n == len(f.ring) {
		grown := make([]T, max(8, 2*f.n))
		copy(grown, f.ring[f.first:])
		copy(grown[len(f.ring)-f.first:], f.ring[:f.first])
		f.ring, f.first = grown, 0
	}
	f.ring[(f.first+f.n)%len(f.ring)] = v
	f.n++
}

func (f *fifo[T]) pop() T {
	var none T
	v := f.ring[f.first]
	f.ring[f.first] = none
	f.first = (f.first + 1) % len(f.ring)
	f.n--
	return v
}
