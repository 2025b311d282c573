package proxy

import (
	"errors"
	"sync"
)

// A memoryBudget bounds the memory that users' calls take, in requests that were read
// and in answers that were not. No user may take more than the bound, or more than is
// free: a user who sends much and reads slowly must not take what others need.
type memoryBudget struct {
	mu     sync.Mutex
	ofUser map[string]int // bytes
	total  int
}

const (
	memoryPerUser = 64 << 20
	memoryInAll   = 256 << 20
	memoryMargin  = 2 << 20 // see Exhausted
	// decodedSize is how many bytes the values of a request take for one of its text.
	decodedSize = 4
)

var errMemory = errors.New("too much is under way for this user")

// Reserve counts n bytes of a user before they are there. If the user has too many
// already, the error is errMemory, and none are counted. Whoever has none is never
// refused.
func (b *memoryBudget) Reserve(user string, n int) (reserved int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.ofUser[user]; before > 0 && before+n > min(memoryPerUser, memoryInAll-b.total) {
		return 0, errMemory
	}
	b.add(user, n)
	return n, nil
}

// Add counts n bytes that are there already.
func (b *memoryBudget) Add(user string, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, n)
	return n
}

// Shrink releases what of n bytes was not needed, and returns what was.
func (b *memoryBudget) Shrink(user string, n, needed int) int {
	b.Release(user, n-needed)
	return needed
}

// Release counts n bytes of a user no longer.
func (b *memoryBudget) Release(user string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, -n)
}

// Exhausted tells whether a user has so much, or all together, that there should be no
// more answers. It is a little more than Reserve allows, so that whoever has nothing
// but one batch is bounded by what batches are.
func (b *memoryBudget) Exhausted(user string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ofUser[user] > memoryPerUser+memoryMargin || b.ofUser[user] > memoryMargin && b.total > memoryInAll+memoryMargin
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
