package snapshot

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/initiator"
)

// A writer writes random blocks to a volume, one at a time, until it is stopped.
type writer interface {
	acked() uint64          // at least this many writes have been acknowledged
	begun() uint64          // at most this many writes have begun
	progress(n uint64)      // waits until n more writes have been acknowledged
	longest() time.Duration // the longest write since the last call of longest
	stop()
	writes() blocks.Stream
}

// A smallWriter writes with package initiator.
type smallWriter struct {
	t      *testing.T
	device *initiator.Device
	stream blocks.Stream
	start  atomic.Uint64 // the number of the latest write that has begun
	done   atomic.Uint64 // the number of the latest acknowledged write
	end    func()
	mu     sync.Mutex
	took   []time.Duration
}

func startWriter(t *testing.T, to initiator.Target, seed uint64) *smallWriter {
	t.Helper()
	d, err := initiator.Connect(to)
	require.NoError(t, err)
	require.EqualValues(t, blocks.Size, d.BlockSize)
	w := &smallWriter{t: t, device: d, stream: blocks.Stream{Seed: seed, Blocks: d.Blocks}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := w.stream.Write(ctx, w.device, 0, w.start.Store, func(n uint64, took time.Duration) {
			w.done.Store(n)
			w.mu.Lock()
			w.took = append(w.took, took)
			w.mu.Unlock()
		})
		assert.NoError(t, err, "a write failed")
	}()
	w.end = sync.OnceFunc(func() { cancel(); <-done; _ = d.Close() })
	t.Cleanup(w.end)
	return w
}

func (w *smallWriter) stop()                 { w.end() }
func (w *smallWriter) acked() uint64         { return w.done.Load() }
func (w *smallWriter) begun() uint64         { return w.start.Load() }
func (w *smallWriter) writes() blocks.Stream { return w.stream }

func (w *smallWriter) longest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := w.took
	w.took = nil
	if len(took) == 0 {
		return 0
	}
	return slices.Max(took)
}

func (w *smallWriter) progress(n uint64) {
	w.t.Helper()
	from := w.acked()
	require.Eventually(w.t, func() bool { return w.acked() >= from+n }, long, time.Millisecond, "the writer makes no progress")
}

// verify reads a bdev back and compares its contents with the writer's writes. It returns the
// number of the last write that it has found.
func (g *target) verify(bdev string, s blocks.Stream, atLeast, atMost uint64) uint64 {
	g.t.Helper()
	nqn, address := g.share(bdev)
	defer g.unshare(nqn)
	d, err := initiator.Connect(initiator.Target{Address: address, NQN: nqn, HostNQN: "nqn.2026-11.io.spdkgate.test:reader"})
	require.NoError(g.t, err)
	defer func() { _ = d.Close() }()
	last, err := s.Verify(largeReads{d}, atLeast, atMost)
	assert.NoError(g.t, err, bdev)
	return last
}

// largeReads splits a read into commands that are small enough for the target.
type largeReads struct{ *initiator.Device }

func (r largeReads) ReadAt(b []byte, at int64) (int, error) {
	const most = 128 << 10
	for done := 0; done < len(b); done += most {
		if _, err := r.Device.ReadAt(b[done:min(done+most, len(b))], at+int64(done)); err != nil {
			return done, err
		}
	}
	return len(b), nil
}

// quantile returns a quantile of durations; 0.5 is the median.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(q*float64(len(d))))].Round(100 * time.Microsecond)
}
