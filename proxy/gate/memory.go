package gate

import (
	"errors"
	"sync"
)

// A memoryBudget limits the memory for requests that the proxy has read, and for responses that
// clients have not yet read. A user may use at most MemoryPerUser, and at most as much as is still
// free. Therefore, a user who sends a lot and reads slowly cannot use up other users' memory.
type memoryBudget struct {
	mu     sync.Mutex
	ofUser map[string]int // bytes by user
	total  int
}

const (
	// MemoryPerUser is how many bytes of memory a user's requests and results may occupy.
	MemoryPerUser = 64 << 20
	memoryInTotal = 256 << 20
	memoryMargin  = 2 << 20 // see Exhausted
	// DecodedSize is how many bytes of memory a request needs per byte of text.
	DecodedSize = 4
)

var ErrMemory = errors.New("memory limit for this user reached")

// Reserve counts n bytes for a user before they are allocated. If they would exceed the user's
// limit, the error is ErrMemory, and nothing is counted. A user without reserved memory is never
// refused.
func (b *memoryBudget) Reserve(user string, n int) (reserved int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.ofUser[user]; before > 0 && before+n > min(MemoryPerUser, memoryInTotal-b.total) {
		return 0, ErrMemory
	}
	b.add(user, n)
	return n, nil
}

// Add counts n bytes that are already allocated.
func (b *memoryBudget) Add(user string, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, n)
	return n
}

// Shrink releases all but needed of n bytes, and returns needed.
func (b *memoryBudget) Shrink(user string, n, needed int) int {
	b.Release(user, n-needed)
	return needed
}

// Release undoes a Reserve or Add of n bytes.
func (b *memoryBudget) Release(user string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, -n)
}

// Exhausted reports whether this user, or all users together, use so much memory that the user must
// not start another call. It allows memoryMargin more than Reserve, so that a user with a single
// batch reaches the limit on batches first.
func (b *memoryBudget) Exhausted(user string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ofUser[user] > MemoryPerUser+memoryMargin || b.ofUser[user] > memoryMargin && b.total > memoryInTotal+memoryMargin
}

func (b *memoryBudget) add(user string, n int) {
	if b.ofUser == nil {
		b.ofUser = map[string]int{}
	}
	b.total += n
	if b.ofUser[user] += n; b.ofUser[user] == 0 {
		delete(b.ofUser, user)
	}
}

// Reserve counts n bytes of the user's memory until Leave. If they would exceed the user's limit,
// Reserve returns an error and counts nothing.
func (g *Gate) Reserve(x *Exchange, n int) error {
	reserved, err := g.memory.Reserve(x.Sender.User, n)
	x.reserved += reserved
	return err
}

// KeepReserved releases all but n of the bytes reserved for an exchange.
func (g *Gate) KeepReserved(x *Exchange, n int) {
	x.reserved = g.memory.Shrink(x.Sender.User, x.reserved, n)
}

// ReserveFor counts n bytes of a user's memory until ReleaseFor.
func (g *Gate) ReserveFor(user string, n int) (reserved int, err error) {
	return g.memory.Reserve(user, n)
}

// AddFor counts n bytes of a user's memory that are already allocated, until ReleaseFor.
func (g *Gate) AddFor(user string, n int) { g.memory.Add(user, n) }

// ReleaseFor undoes ReserveFor and AddFor.
func (g *Gate) ReleaseFor(user string, n int) { g.memory.Release(user, n) }

// MemoryInUse returns how many bytes are reserved, for one user and in total.
func (g *Gate) MemoryInUse(user string) (own, total int) {
	g.memory.mu.Lock()
	defer g.memory.mu.Unlock()
	return g.memory.ofUser[user], g.memory.total
}
