package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A killedCall is a call during which the node plugin is killed.
type killedCall struct {
	name   string
	before []func(*csiVolume) func(context.Context) (string, error) // calls that precede it
	call   func(*csiVolume) func(context.Context) (string, error)
}

var (
	callStage     = func(v *csiVolume) func(context.Context) (string, error) { return v.stage }
	callPublish   = func(v *csiVolume) func(context.Context) (string, error) { return v.publish }
	callWrite     = func(v *csiVolume) func(context.Context) (string, error) { return v.write }
	callRead      = func(v *csiVolume) func(context.Context) (string, error) { return v.read }
	callUnpublish = func(v *csiVolume) func(context.Context) (string, error) { return v.unpublish }
	callUnstage   = func(v *csiVolume) func(context.Context) (string, error) { return v.unstage }
	callGone      = func(v *csiVolume) func(context.Context) (string, error) { return v.gone }
)

type calls = []func(*csiVolume) func(context.Context) (string, error)

// killed kills the node plugin before each system call that changes something during a CSI call,
// whether the plugin or one of its tools makes it. Then it starts the plugin again, and checks that
// the retried call succeeds and that the volume can be used and removed. In every second case, it
// does not retry the call, and checks only that the volume can be removed. Each run kills the
// plugin at only a third of the steps, so that three runs can cover all steps; the clock determines
// which third. With --all, it kills the plugin at every step, tests both cases there, and also lets
// tools continue after their parent has been killed.
func (s *scenario) killed(p *plugin) {
	k := &killing{scenario: s, plugin: p, parts: 3, first: time.Now().Second()}
	fsTypes := []string{"ext4"}
	if s.all {
		fsTypes = []string{"ext4", "xfs", ""}
	}
	for _, fsType := range fsTypes {
		for _, c := range []killedCall{
			{"stage", nil, callStage},
			{"publish", calls{callStage}, callPublish},
			{"unpublish", calls{callStage, callPublish, callWrite}, callUnpublish},
			{"unstage", calls{callStage}, callUnstage},
		} {
			s.inCase(strings.TrimSpace("node plugin killed at steps of "+c.name+" "+fsType), func() { k.each(c, fsType) })
		}
	}
	if p.cmd != nil {
		s.step("stop the node plugin", func(context.Context) (string, error) { return "", p.stop(unix.SIGTERM) })
	}
}

type killing struct {
	*scenario
	plugin  *plugin
	volumes int

	encrypted bool             // the volumes are encrypted
	only      func(point) bool // the points at which to kill; nil means all
	parts     int              // the number of runs that together cover all points
	first     int              // the index of this run
}

// each runs a call repeatedly, and kills the plugin at a different point each time.
func (k *killing) each(c killedCall, fsType string) {
	if k.volumes == 0 {
		// the plugin creates directories for the first volume
		k.step("first volume", func(ctx context.Context) (string, error) {
			v, err := k.begin(ctx, killedCall{before: calls{callStage, callPublish}}, fsType)
			if err != nil {
				return "", err
			}
			return "", k.finish(ctx, v, nil)
		})
	}
	var points []point
	k.step("record its steps", func(ctx context.Context) (string, error) {
		v, err := k.begin(ctx, c, fsType)
		if err != nil {
			return "", err
		}
		k.plugin.trace.onPoint(func(p point) kill {
			points = append(points, p)
			return nothing
		})
		_, err = c.call(v)(ctx)
		k.plugin.trace.onPoint(nil)
		k.figures = fmt.Sprintf("%d steps, killed at %d of them", len(points), len(k.positions(points)))
		return k.figures, errors.Join(err, k.finish(ctx, v, nil))
	})
	repeated := calls{c.call, callPublishIfStaged, callUnpublish, callUnstage, callGone}
	variants := []struct {
		name string
		mode kill
		then calls
	}{
		{"repeated", everything, repeated},
		{"given up", everything, calls{callUnpublish, callUnstage, callGone}},
		{"repeated, tools continued", pluginOnly, repeated},
	}
	for i, at := range k.positions(points) {
		for j, v := range variants {
			if !k.all && j != i%2 {
				continue
			}
			k.step(fmt.Sprintf("killed before step %d, %s", at+1, v.name), func(ctx context.Context) (string, error) {
				volume, err := k.begin(ctx, c, fsType)
				if err != nil {
					return "", err
				}
				where, err := k.killAt(ctx, c.call(volume), at, v.mode)
				return where, errors.Join(err, k.finish(ctx, volume, v.then))
			})
		}
	}
}

// callPublishIfStaged publishes, writes and reads, unless the pod is terminating.
var callPublishIfStaged = func(v *csiVolume) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if v.ending {
			return "", nil
		}
		for _, call := range (calls{callPublish, callWrite, callRead}) {
			if detail, err := call(v)(ctx); err != nil {
				return detail, err
			}
		}
		return "", nil
	}
}

// positions returns the indices of the points at which to kill. Of many writes to the same file, it
// selects only the first, one in the middle, and the last. Without --all, positions returns only
// some of these indices.
func (k *killing) positions(points []point) (at []int) {
	for from := 0; from < len(points); {
		to := from + 1
		for to < len(points) && points[to] == points[from] {
			to++
		}
		for i := from; i < to; i++ {
			if points[i].call == "fsync" && !k.all || k.only != nil && !k.only(points[i]) {
				continue // only durability changes
			}
			if k.all && to-from < 20 || i == from || i == to-1 || i == (from+to)/2 {
				at = append(at, i)
			}
		}
		from = to
	}
	if k.all {
		return at
	}
	var part []int
	for i := k.first % k.parts; i < len(at); i += k.parts {
		part = append(part, at[i])
	}
	return part
}

// begin starts the plugin if it is not running, creates a new volume, and makes the preceding
// calls.
func (k *killing) begin(ctx context.Context, c killedCall, fsType string) (*csiVolume, error) {
	if k.plugin.cmd == nil {
		if err := k.plugin.start(ctx, true); err != nil {
			return nil, err
		}
	}
	k.volumes++
	name := fmt.Sprintf("killed-%d", k.volumes)
	v := &csiVolume{scenario: k.scenario, plugin: k.plugin, pod: podOf(name), name: name, id: "t0:" + name, fsType: fsType}
	v.ending = strings.HasPrefix(c.name, "un")
	size := smallest(fsType)
	if k.encrypted {
		size = encryptedSize(fsType)
	}
	if err := v.create(ctx, size); err != nil {
		return nil, err
	}
	if k.encrypted {
		v.encrypt()
	}
	for _, call := range c.before {
		if _, err := call(v)(ctx); err != nil {
			return nil, err
		}
	}
	return v, v.prepare()
}

// killAt makes a call and kills the plugin at a point in it.
func (k *killing) killAt(ctx context.Context, call func(context.Context) (string, error), at int, mode kill) (where string, err error) {
	n := 0
	k.plugin.trace.onPoint(func(p point) kill {
		n++
		if n <= at {
			return nothing
		}
		where = p.String()
		return mode
	})
	_, callErr := call(ctx)
	if where == "" {
		return "", errors.Join(fmt.Errorf("the call had only %d steps", n), callErr)
	}
	if status.Code(callErr) != codes.Unavailable {
		err = fmt.Errorf("%s: the call to the killed plugin returned: %w", where, callErr)
	}
	return where, errors.Join(err, k.plugin.stop(unix.SIGKILL), k.plugin.start(ctx, true))
}

// finish makes calls, then removes the volume.
func (k *killing) finish(ctx context.Context, v *csiVolume, then calls) error {
	if then == nil {
		then = calls{callUnpublish, callUnstage, callGone}
	}
	for _, call := range then {
		if detail, err := call(v)(ctx); err != nil {
			return fmt.Errorf("afterwards: %w %s", err, detail)
		}
	}
	return v.target.remove(ctx, v.name)
}
