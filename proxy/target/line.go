package target

// A waiter is one call that waits for its turn.
type waiter struct {
	user       *user
	answer     *size
	told       chan error // nil: it has its turn; room for one, so that nobody waits to tell
	turn       turn
	next, prev *waiter
}

// A line holds the waiting calls of one user, and lets any of them leave.
type line struct {
	first, last *waiter
	n           int
}

func (l *line) push(w *waiter) {
	w.prev = l.last
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.n++
}

func (l *line) remove(w *waiter) {
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

// A fifo is a ring that grows.
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
