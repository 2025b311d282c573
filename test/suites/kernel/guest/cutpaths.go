package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// cutPaths uses a volume over two paths, and cuts these paths during writes.
func (s *scenario) cutPaths(p *plugin, direct string) {
	const size = 8 * mib
	v := s.newCSIVolume(p, "paths", size, "")
	var paths [2]*relay
	v.step("two paths", func(context.Context) (_ string, err error) {
		var list []connect.Address
		for i := range paths {
			if paths[i], err = newRelay(direct + ":" + v.context[connect.KeyTargetPort]); err != nil {
				return "", err
			}
			list = append(list, connect.Address{Addr: "127.0.0.1", Port: paths[i].port()})
		}
		v.context[connect.KeyTargetAddrs] = connect.FormatAddresses(list)
		// These are options of a StorageClass.
		v.context["reconnect_delay"], v.context["keep_alive_tmo"], v.context["ctrl_loss_tmo"] = "1", "3", "120"
		return v.context[connect.KeyTargetAddrs], nil
	})
	v.step("stage", v.stage)
	v.step("the class's options reached the kernel", func(context.Context) (string, error) { return controllersHave(v.context[connect.KeyNQN]) })
	v.step("use both paths", func(context.Context) (string, error) { return "", useAllPaths(v.context[connect.KeyNQN]) })
	v.step("publish", v.publish)
	var w *recorder
	v.step("write", func(ctx context.Context) (_ string, err error) {
		if w, err = record(v.file(), 1, size); err != nil {
			return "", err
		}
		return w.more(ctx, 20)
	})
	var stalls []string
	during := func(name string, change func()) {
		v.step(name, func(ctx context.Context) (string, error) {
			change()
			stall, err := w.more(ctx, 50)
			stalls = append(stalls, name+": "+stall)
			s.figures = strings.Join(stalls, "; ")
			return stall, err
		})
	}
	live := func(want ...string) {
		v.step("states "+strings.Join(want, ", "), func(ctx context.Context) (string, error) {
			return "", statesBecome(ctx, v.context[connect.KeyNQN], want)
		})
	}
	during("one path refuses connections", func() { paths[0].set(refuses) })
	live("connecting", "live")
	during("it is back", func() { paths[0].set(whole) })
	live("live", "live")
	during("the other path drops all data", func() { paths[1].set(drops) })
	live("connecting", "live")
	during("it is back", func() { paths[1].set(whole) })
	live("live", "live")
	v.step("both paths are cut", func(context.Context) (string, error) {
		paths[0].set(refuses)
		paths[1].set(refuses)
		return "", nil
	})
	live("connecting", "connecting")
	during("both are back", func() { paths[0].set(whole); paths[1].set(whole) })
	live("live", "live")
	v.step("all data is there", w.verify)
	v.step("unpublish", v.unpublish)
	v.step("one path is cut", func(context.Context) (string, error) { paths[1].set(refuses); return "", nil })
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	for _, r := range paths {
		_ = r.Close()
	}
	v.delete()
}

// controllersOf returns the sysfs directories of a subsystem's controllers.
func controllersOf(nqn string) (found []string, err error) {
	all, err := filepath.Glob("/sys/class/nvme/nvme*")
	for _, c := range all {
		if attribute(c, "subsysnqn") == nqn {
			found = append(found, c)
		}
	}
	return found, err
}

func attribute(dir, name string) string {
	text, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(text))
}

// controllersHave checks that the controllers have the options set by cutPaths.
func controllersHave(nqn string) (string, error) {
	all, err := controllersOf(nqn)
	if len(all) != 2 {
		return "", fmt.Errorf("%d controllers, want 2: %w", len(all), err)
	}
	for _, c := range all {
		for name, want := range map[string]string{"reconnect_delay": "1", "kato": "3", "ctrl_loss_tmo": "120"} {
			if have := attribute(c, name); have != want {
				err = errors.Join(err, fmt.Errorf("%s: %s is %s, want %s", c, name, have, want))
			}
		}
	}
	return "", err
}

// useAllPaths makes the kernel alternate between a subsystem's paths.
func useAllPaths(nqn string) error {
	all, err := filepath.Glob("/sys/class/nvme-subsystem/*")
	for _, s := range all {
		if attribute(s, "subsysnqn") == nqn {
			err = errors.Join(err, write(filepath.Join(s, "iopolicy"), "round-robin"))
		}
	}
	return err
}

// statesBecome waits until a subsystem's controllers have the given states.
func statesBecome(ctx context.Context, nqn string, want []string) error {
	var states []string
	for tick := time.Tick(50 * time.Millisecond); ; {
		all, err := controllersOf(nqn)
		if err != nil {
			return err
		}
		states = nil
		for _, c := range all {
			states = append(states, attribute(c, "state"))
		}
		slices.Sort(states)
		if slices.Equal(states, want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the controllers are %v: %w", states, ctx.Err())
		case <-tick:
		}
	}
}
