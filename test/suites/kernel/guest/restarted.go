package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// restarted is the scenario where the target is killed and started again during writes to its
// volumes.
func (s *scenario) restarted() (err error) {
	defer s.end(&err)
	t, ok := s.target.(hostTarget)
	if !ok {
		return errors.New("needs a target on the host")
	}
	if err := modprobe("ext4", "nvme-tcp"); err != nil {
		return err
	}
	p, err := newPlugin()
	if err != nil {
		return err
	}
	s.inCase("target killed and restarted under I/O", func() {
		s.step("start the node plugin", func(ctx context.Context) (string, error) { return "", p.start(ctx, false) })
		const size = 32 * mib
		block, file := s.newCSIVolume(p, "block", size, ""), s.newCSIVolume(p, "ext4", size, "ext4")
		var writers []*recorder
		for i, v := range []*csiVolume{block, file} {
			v.step("stage "+v.name, v.stage)
			v.step("publish "+v.name, v.publish)
			v.step("write "+v.name, func(ctx context.Context) (string, error) {
				if v.fsType != "" {
					if err := emptyFile(v.file(), size/4); err != nil {
						return "", err
					}
				}
				w, err := record(v.file(), uint64(i+1), size/4)
				if err != nil {
					return "", err
				}
				writers = append(writers, w)
				return w.more(ctx, 50)
			})
		}
		stalls := ""
		for round := range 3 {
			s.step(fmt.Sprintf("kill and restart the target, round %d", round+1), func(ctx context.Context) (string, error) {
				_, err := t.call(ctx, control.TargetCall{Do: control.Restart})
				return "", err
			})
			for i, w := range writers {
				s.step("writes go on", func(ctx context.Context) (string, error) {
					stall, err := w.more(ctx, 50)
					stalls += fmt.Sprintf("round %d, %s: %s; ", round+1, []string{"block", "ext4"}[i], stall)
					s.figures = stalls
					return stall, err
				})
			}
		}
		for i, w := range writers {
			s.step([]string{"block", "ext4"}[i]+": all data is there", w.verify)
		}
		for _, v := range []*csiVolume{block, file} {
			v.step("unpublish", v.unpublish)
			v.step("unstage", v.unstage)
			v.step("nothing is left", v.gone)
			v.delete()
		}
	})
	return nil
}
