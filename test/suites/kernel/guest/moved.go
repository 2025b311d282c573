package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
	"github.com/spdkgate/spdkgate/test/suites/snapshot/blocks"
)

const movedSize = 8 * mib

// movedFrom is the scenario for a node that loses its connection during writes. The host then moves
// the volume to another machine, which writes to it. When this node's connection is restored, its
// kernel tries to send the pending writes.
func (s *scenario) movedFrom() (err error) {
	defer s.end(&err)
	if err := modprobe("nvme-tcp"); err != nil {
		return err
	}
	t, ok := s.target.(hostTarget)
	p, err := newPlugin()
	if err != nil || !ok {
		return errors.Join(err, errors.New("needs a target on the host"))
	}
	s.inCase("moved: the node that is cut off", func() {
		s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
		v := s.newCSIVolume(p, "moved", movedSize, "")
		var path *relay
		v.step("stage over a path that can be cut", func(ctx context.Context) (_ string, err error) {
			if path, err = newRelay(control.Address + ":" + v.context[connect.KeyTargetPort]); err != nil {
				return "", err
			}
			v.context[connect.KeyTargetAddr], v.context[connect.KeyTargetPort] = "127.0.0.1", path.port()
			v.context["reconnect_delay"], v.context["keep_alive_tmo"], v.context["ctrl_loss_tmo"] = "1", "5", "30"
			return v.stage(ctx)
		})
		v.step("publish", v.publish)
		var w *recorder
		v.step("write", func(ctx context.Context) (_ string, err error) {
			if w, err = record(v.file(), 1, movedSize); err != nil {
				return "", err
			}
			return w.more(ctx, 50)
		})
		v.step("cut off", func(context.Context) (string, error) { path.set(drops); return "", nil })
		v.step("the volume is moved and written elsewhere", func(ctx context.Context) (string, error) {
			w.mu.Lock()
			call := control.TargetCall{Do: control.Move, Volume: v.name, Node: control.SecondNode, Acked: w.acked, Begun: w.begun}
			w.mu.Unlock()
			_, err := t.call(ctx, call)
			return fmt.Sprintf("%d writes were acknowledged, %d begun", call.Acked, call.Begun), err
		})
		acked := w.acked
		v.step("connected again: the write fails", func(ctx context.Context) (string, error) {
			start := time.Now()
			path.set(whole)
			select {
			case <-w.ended:
			case <-ctx.Done():
				return "", errors.New("the write neither fails nor succeeds")
			}
			if w.err == nil || w.acked != acked {
				return "", fmt.Errorf("%d writes were acknowledged, %d of them before the cut; error %w", w.acked, acked, w.err)
			}
			s.figures = fmt.Sprintf("refused after %.1f s: %v", time.Since(start).Seconds(), w.err)
			return s.figures, nil
		})
		v.step("another write fails", func(context.Context) (string, error) {
			f, err := os.OpenFile(v.file(), os.O_WRONLY|os.O_SYNC, 0)
			if err == nil {
				_, err = f.WriteAt([]byte("too late"), 0)
				err = errors.Join(err, f.Close())
			}
			if err == nil {
				return "", errors.New("it succeeded")
			}
			return err.Error(), nil
		})
		v.step("tell the other node", func(ctx context.Context) (string, error) {
			_, err := t.call(ctx, control.TargetCall{Do: control.Failed})
			return "", err
		})
		v.step("unpublish", v.unpublish)
		v.step("unstage", v.unstage)
		v.step("nothing is left", v.gone)
	})
	return nil
}

// movedTo is the scenario for the node that gets the volume.
func (s *scenario) movedTo(params map[string]string) (err error) {
	defer s.end(&err)
	if err := modprobe("nvme-tcp"); err != nil {
		return err
	}
	t, ok := s.target.(hostTarget)
	p, err := newPlugin()
	if err != nil || !ok {
		return errors.Join(err, errors.New("needs a target on the host"))
	}
	s.inCase("moved: the node that gets the volume", func() {
		s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
		v := &csiVolume{scenario: s, plugin: p, pod: podOf("moved"), name: "moved", id: "t0:moved"}
		v.step("target: publish", func(ctx context.Context) (_ string, err error) {
			v.context, err = t.call(ctx, control.TargetCall{Do: control.Publish, Volume: v.name, Node: nodeID})
			return "", err
		})
		v.step("stage", v.stage)
		v.step("publish", v.publish)
		v.step("has what was acknowledged", func(context.Context) (string, error) {
			acked, err := strconv.ParseUint(params[control.ParamAcked+".moved"], 10, 64)
			if err != nil {
				return "", err
			}
			f, err := os.Open(v.file())
			if err != nil {
				return "", err
			}
			defer f.Close()
			last, err := blocks.Stream{Seed: 1, Blocks: movedSize / blocks.Size}.Verify(f, acked, acked+1)
			return fmt.Sprintf("%d writes", last), err
		})
		v.step("overwrite", v.overwrite)
		v.step("wait until the first node's write failed", func(ctx context.Context) (string, error) {
			_, err := t.call(ctx, control.TargetCall{Do: control.Await})
			return "", err
		})
		v.step("nothing was overwritten", v.isOverwritten)
		v.step("unpublish", v.unpublish)
		v.step("unstage", v.unstage)
		v.step("nothing is left", v.gone)
	})
	return nil
}

// overwrite overwrites the whole volume, and isOverwritten checks its contents.
func (v *csiVolume) overwrite(context.Context) (string, error) {
	f, err := os.OpenFile(v.file(), os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	b := make([]byte, blocks.Size)
	for i := int64(0); i < movedSize/blocks.Size && err == nil; i++ {
		blocks.Stream{Seed: 2, Blocks: 1}.Fill(uint64(i+1), b)
		_, err = f.WriteAt(b, i*blocks.Size)
	}
	return "", errors.Join(err, f.Sync(), f.Close())
}

func (v *csiVolume) isOverwritten(context.Context) (string, error) {
	if err := write("/proc/sys/vm/drop_caches", "3"); err != nil {
		return "", err
	}
	f, err := os.Open(v.file())
	if err != nil {
		return "", err
	}
	defer f.Close()
	have, want := make([]byte, blocks.Size), make([]byte, blocks.Size)
	for i := range int64(movedSize / blocks.Size) {
		blocks.Stream{Seed: 2, Blocks: 1}.Fill(uint64(i+1), want)
		if _, err := f.ReadAt(have, i*blocks.Size); err != nil || string(have) != string(want) {
			return "", fmt.Errorf("block %d was overwritten: % x: %w", i, have[:32], err)
		}
	}
	return "", nil
}
