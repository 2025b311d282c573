package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
)

// ordered is the scenario that writes to several volumes in turn until the host tells it to end.
func (s *scenario) ordered() (err error) {
	defer s.end(&err)
	n, err := newNode(control.WriterNode)
	if err != nil {
		return err
	}
	var volumes []*volume
	var devices []io.WriterAt
	for _, name := range control.OrderedVolumes {
		v := s.makeVolume(n, name, 0, "")
		v.step("connect", v.connect)
		v.step("open", func(context.Context) (string, error) {
			f, err := os.OpenFile(v.device.Path, os.O_WRONLY|unix.O_DIRECT, 0)
			devices = append(devices, newAligned(f))
			return "", err
		})
		volumes = append(volumes, v)
	}
	w := &written{Progress: control.Progress{Volume: "all"}}
	writing, stop := context.WithCancel(s.ctx)
	defer stop()
	g, ctx := errgroup.WithContext(writing)
	g.Go(func() error {
		return blocks.WriteInTurn(ctx, devices, func(n uint64, took time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.Begun, w.Acked, w.Longest = n, n, max(w.Longest, took)
		})
	})
	g.Go(func() error {
		defer stop()
		return s.report(ctx, []*written{w})
	})
	s.step("write", func(context.Context) (string, error) {
		err := g.Wait()
		for _, d := range devices {
			err = errors.Join(err, d.(aligned).Close())
		}
		return "", err
	})
	for _, v := range volumes {
		v.step("disconnect "+v.name, v.disconnect)
	}
	return nil
}
