package heal

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// A NodeLock is a lock file that at most one process on this node can hold. The kernel releases the
// lock when the process, including its system calls, has ended.
type NodeLock struct {
	path string
	mu   sync.Mutex
	file *os.File // open while the lock is held, until the process ends
}

// NewNodeLock returns a lock with a file at path, which Acquire creates.
func NewNodeLock(path string) *NodeLock { return &NodeLock{path: path} }

// Acquire acquires the lock if this process does not hold it yet. It does not wait.
func (l *NodeLock) Acquire() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("another process of the node plugin has not ended yet: lock %s: %w", l.path, err), f.Close())
	}
	l.file = f
	return nil
}
