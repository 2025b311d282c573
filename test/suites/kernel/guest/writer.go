package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
)

// writer is the scenario that writes to several volumes until the host tells it to end. It writes
// in a way (package blocks) that allows verifying any copy of a volume.
func (s *scenario) writer() (err error) {
	defer s.end(&err)
	n, err := newNode(control.WriterNode)
	if err != nil {
		return err
	}
	var all []*written
	for i, name := range control.WriterVolumes {
		v := s.makeVolume(n, name, 0, "")
		v.step("connect", v.connect)
		w := &written{volume: v, stream: blocks.Stream{Seed: uint64(i + 1), Blocks: v.device.SizeBytes / blocks.Size}}
		w.Volume = name
		all = append(all, w)
	}
	writing, stop := context.WithCancel(s.ctx)
	defer stop()
	g, ctx := errgroup.WithContext(writing)
	for _, w := range all {
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error {
		defer stop()
		return s.report(ctx, all)
	})
	s.step("write", func(context.Context) (string, error) { return "", g.Wait() })
	for _, w := range all {
		w.step("disconnect "+w.name, w.disconnect)
	}
	return nil
}

// written is a volume with a stream of writes.
type written struct {
	*volume
	stream blocks.Stream
	mu     sync.Mutex
	control.Progress
}

func (w *written) run(ctx context.Context) error {
	f, err := os.OpenFile(w.device.Path, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	_, err = w.stream.Write(ctx, newAligned(f), 0, func(n uint64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.Begun = n
	}, func(n uint64, took time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.Acked, w.Longest = n, max(w.Longest, took)
	})
	return errors.Join(err, f.Close())
}

// report sends the progress of the writes to the host, until the host tells it to end.
func (s *scenario) report(ctx context.Context, all []*written) error {
	for tick := time.Tick(50 * time.Millisecond); ; {
		var now []control.Progress
		for _, w := range all {
			w.mu.Lock()
			now = append(now, w.Progress)
			w.Longest = 0
			w.mu.Unlock()
		}
		var reply control.ProgressReply
		if err := s.host.post(s.ctx, control.PathProgress, now, &reply); err != nil {
			return err
		}
		if reply.End {
			return nil
		}
		select {
		case <-ctx.Done(): // a writer failed
			return nil
		case <-tick:
		}
	}
}

// aligned writes blocks from memory aligned for direct I/O.
type aligned struct {
	*os.File
	block []byte
}

func newAligned(f *os.File) aligned {
	b := make([]byte, 2*blocks.Size)
	at := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % blocks.Size
	return aligned{f, b[at : at+blocks.Size]}
}

func (a aligned) WriteAt(b []byte, at int64) (int, error) {
	if copy(a.block, b) != len(b) {
		return 0, fmt.Errorf("%d bytes are not one block", len(b))
	}
	return a.File.WriteAt(a.block, at)
}
