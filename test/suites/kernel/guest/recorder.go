package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
)

// A recorder writes to a block device or a file, bypassing the page cache, and records the
// acknowledged writes.
type recorder struct {
	stream blocks.Stream
	path   string
	stop   context.CancelFunc
	ended  chan struct{}

	mu           sync.Mutex
	begun, acked uint64
	longest      time.Duration // since the last call of stall
	err          error
	changed      chan struct{} // closed at the next acknowledgement
}

// record starts writing to the first bytes of the file or device at a path.
func record(path string, seed uint64, bytes int64) (*recorder, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT|unix.O_SYNC, 0)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &recorder{stream: blocks.Stream{Seed: seed, Blocks: bytes / blocks.Size}, path: path, stop: stop, ended: make(chan struct{}), changed: make(chan struct{})}
	go func() {
		defer close(r.ended)
		_, err := r.stream.Write(ctx, newAligned(f), 0, func(n uint64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.begun = n
		}, func(n uint64, took time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.acked, r.longest = n, max(r.longest, took)
			close(r.changed)
			r.changed = make(chan struct{})
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = errors.Join(err, f.Close())
	}()
	return r, nil
}

// emptyFile creates a file of zeroes. Its blocks are allocated and synced, so that writes to it do
// not change any metadata.
func emptyFile(path string, bytes int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, bytes))
	return errors.Join(err, f.Sync(), f.Close())
}

func emptyFileWithoutSync(path string) error { return os.WriteFile(path, make([]byte, mib), 0o600) }

// more waits until n further writes have been acknowledged, and returns the duration of the longest
// write since the last call.
func (r *recorder) more(ctx context.Context, n uint64) (string, error) {
	r.mu.Lock()
	until := r.acked + n
	r.mu.Unlock()
	for {
		r.mu.Lock()
		acked, changed, err := r.acked, r.changed, r.err
		r.mu.Unlock()
		if err != nil {
			return "", err
		}
		if acked >= until {
			return r.stall(), nil
		}
		select {
		case <-changed:
		case <-r.ended:
			r.mu.Lock()
			defer r.mu.Unlock()
			return "", fmt.Errorf("the writer ended: %w", r.err)
		case <-ctx.Done():
			return "", fmt.Errorf("only %d of %d writes: %w", acked, until, ctx.Err())
		}
	}
}

// stall returns the duration of the longest write since the last call.
func (r *recorder) stall() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.longest = 0 }()
	return fmt.Sprintf("longest write %.1f s", r.longest.Seconds())
}

// verify ends the writes, and checks that the device contains exactly the acknowledged writes, and
// at most one more.
func (r *recorder) verify(context.Context) (string, error) {
	r.stop()
	<-r.ended
	if r.err != nil {
		return "", r.err
	}
	if err := write("/proc/sys/vm/drop_caches", "3"); err != nil {
		return "", err
	}
	f, err := os.Open(r.path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	last, err := r.stream.Verify(f, r.acked, r.begun)
	return fmt.Sprintf("%d writes", last), err
}
