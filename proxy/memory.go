package proxy

import (
	"errors"
	"sync"
)

// A memoryBudget bounds the memory of requests that the proxy has read and of answers that
// clients have not read yet. No user may have more than memoryPerUser, or more than is free,
// so a user who sends much and reads slowly does not take the memory that others need.
type memoryBudget struct {
	mu     sync.Mutex
	ofUser map[string]int // bytes
	total  int
}

const (
	memoryPerUser = 64 << 20
	memoryInTotal = 256 << 20
	memoryMargin  = 2 << 20 // see Exhausted
	// decodedSize is how many bytes of memory a request takes for each byte of its text.
	decodedSize = 4
)

var errMemory = errors.New("memory limit for this user reached")

// Reserve counts n bytes of a user before they are allocated. If the user would have too
// many, the error is errMemory and nothing is counted. A user who has none is never refused.
func (b *memoryBudget) Reserve(user string, n int) (reserved int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before := b.ofUser[user]; before > 0 && before+n > min(memoryPerUser, memoryInTotal-b.total) {
		return 0, errMemory
	}
	b.add(user, n)
	return n, nil
}

// Add counts n bytes that are allocated already.
func (b *memoryBudget) Add(user string, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, n)
	return n
}

// Shrink releases the part of n bytes that was not needed, and returns needed.
func (b *memoryBudget) Shrink(user string, n, needed int) int {
	b.Release(user, n-needed)
	return needed
}

// Release undoes Reserve or Add of n bytes.
func (b *memoryBudget) Release(user string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(user, -n)
}

// Exhausted reports whether this user, or all users together, have so much memory that no
// further call should be started for the user. It allows memoryMargin more than Reserve, so
// that a user with a single batch reaches the limit of batches first.
func (b *memoryBudget) Exhausted(user string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ofUser[user] > memoryPerUser+memoryMargin || b.ofUser[user] > memoryMargin && b.total > memoryInTotal+memoryMargin
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
