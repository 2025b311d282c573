package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/mount"
)

// nvme is the scenario for the NVMe connector: first refused connections, then the lifecycle of
// volumes.
func (s *scenario) nvme() (err error) {
	defer s.end(&err)
	n, err := newNode("kernel-test")
	if err != nil {
		return err
	}
	intruder, err := newNode("intruder")
	if err != nil {
		return err
	}
	s.step("machine", func(context.Context) (string, error) {
		release, err := os.ReadFile("/proc/sys/kernel/osrelease")
		multipath, _ := os.ReadFile("/sys/module/nvme_core/parameters/multipath")
		return strings.TrimSpace("kernel " + strings.TrimSpace(string(release)) + " " + string(multipath)), err
	})

	v := s.makeVolume(n, "ext4", 320*mib, "ext4")
	s.step("not connected yet", v.disconnect)
	s.nvmeRefusals(v, intruder)
	v.life(640 * mib)
	v.shutDownFilesystem()
	v.lostDevice()
	v.removeVolume()

	x := s.makeVolume(n, "xfs", 320*mib, "xfs")
	x.life(640 * mib)
	x.shutDownFilesystem()
	x.lostDevice()
	x.removeVolume()

	b := s.makeVolume(n, "block", 64*mib, "")
	b.block()
	s.step("connect to a removed volume", func(ctx context.Context) (string, error) {
		_, err := x.Connect(ctx, x.export)
		return refusal(err, connect.ErrNoSubsystem)
	})
	b.removeVolume()
	if own, ok := s.target.(*nvmeTarget); ok {
		p := s.makeVolume(n, "paths", 64*mib, "")
		p.twoPaths(own)
		p.removeVolume()
	}
	s.step("no controllers are left", func(context.Context) (string, error) { return "", noControllers() })
	return nil
}

// end recovers from the panic of a failed step, which ends the scenario, and sets *err.
func (s *scenario) end(err *error) {
	r := recover()
	var step failed
	if e, ok := r.(error); ok && errors.As(e, &step) {
		*err = fmt.Errorf("scenario ended: %w", step)
	} else if r != nil {
		panic(r)
	}
}

func (s *scenario) nvmeRefusals(v *volume, intruder node) {
	refused := func(name string, n node, change func(e *connect.Export), kind error) {
		s.step(name, func(ctx context.Context) (string, error) {
			e := v.export
			change(&e)
			_, err := n.Connect(ctx, e)
			detail, err := refusal(err, kind)
			return detail, errors.Join(err, noControllers())
		})
	}
	refused("host not allowed", intruder, func(*connect.Export) {}, connect.ErrRefused)
	refused("wrong NQN", v.node, func(e *connect.Export) { e.NQN += "-wrong" }, connect.ErrNoSubsystem)
	refused("wrong port", v.node, func(e *connect.Export) { e.Port = "1" }, connect.ErrUnreachable)
	refused("wrong namespace", v.node, func(e *connect.Export) { e.NSUUID = uuid.NewString() }, connect.ErrNoNamespace)
	s.step("silent address, deadline of 1 s", func(ctx context.Context) (string, error) {
		e := v.export
		e.Address = "10.0.2.200" // unused: the kernel tries to resolve it for some seconds
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		// The kernel's own timeout is longer than this deadline.
		_, err := v.Connect(short, e)
		detail, err := refusal(err, connect.ErrTimeout)
		// After the kernel's last attempt, the target can be used again.
		return detail, errors.Join(err, v.Disconnect(ctx, v.export), noControllers())
	})
}

// lostDevice disconnects a target until the kernel removes the device of a mounted file system.
func (v *volume) lostDevice() {
	v.step("connect", v.connect)
	v.step("mount", v.stage(false))
	v.step("publish", v.publish)
	v.step("the kernel removes the device", func(ctx context.Context) (string, error) {
		controllers, err := filepath.Glob("/sys/class/nvme/nvme*/delete_controller")
		for _, c := range controllers {
			err = errors.Join(err, write(c, "1"))
		}
		p, atErr := v.At(v.staging())
		if err = errors.Join(err, atErr); err == nil && !p.Stale {
			err = fmt.Errorf("the mount is not reported as stale: %+v", p)
		}
		if _, statErr := os.ReadDir(v.public()); err == nil && statErr == nil {
			return "a mount without a device, still readable from memory", nil
		} else {
			return fmt.Sprint("a mount without a device: ", statErr), err
		}
	})
	v.step("its statistics are refused", func(ctx context.Context) (string, error) {
		_, err := v.Stats(ctx, v.staging())
		return refusal(err, mount.ErrNotMounted)
	})
	v.device = connect.Device{}
	v.step("connect again", v.connect)
	v.step("the stale mount is replaced", v.stage(false))
	v.step("the published mount is replaced", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("disconnect", v.disconnect)
}

func noControllers() error {
	left, err := filepath.Glob("/sys/class/nvme/nvme*")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left behind: %v", left)
	}
	return err
}
