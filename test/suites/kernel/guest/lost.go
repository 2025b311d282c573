package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/connect"
)

// relayed makes a volume reachable over a path that the test can cut, with the given StorageClass
// options.
func (v *csiVolume) relayed(options map[string]string) *relay {
	var path *relay
	v.step("a path that can be cut", func(context.Context) (_ string, err error) {
		if path, err = newRelay(v.context[connect.KeyTargetAddr] + ":" + v.context[connect.KeyTargetPort]); err != nil {
			return "", err
		}
		v.context[connect.KeyTargetAddr], v.context[connect.KeyTargetPort] = "127.0.0.1", path.port()
		for key, value := range options {
			v.context[key] = value
		}
		return "", nil
	})
	return path
}

// lostDevice disconnects a target until the kernel removes the device below a mounted file system.
// When the target is reachable again, a second pod on the node can use the volume.
func (s *scenario) lostDevice(p *plugin) {
	v := s.newCSIVolume(p, "lost", 32*mib, "ext4")
	path := v.relayed(map[string]string{"ctrl_loss_tmo": "5", "reconnect_delay": "1"})
	defer path.Close()
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("the kernel removes the device", func(ctx context.Context) (string, error) {
		path.set(refuses)
		return "", statesBecome(ctx, v.context[connect.KeyNQN], nil)
	})
	v.step("a second pod is refused while the target is away", func(ctx context.Context) (string, error) {
		second := *v
		second.published += "-2"
		_, err := second.publish(ctx)
		return refusedWith(err, codes.Unavailable)
	})
	path.set(whole)
	first := v.published
	v.published += "-2"
	v.step("the second pod gets the volume", v.publish)
	v.step("read", v.read)
	v.step("unpublish the second pod", v.unpublish)
	v.published = first
	v.step("unpublish the first pod", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}

// unstagedWithoutTarget ends a pod while the target is unreachable and some data has not been
// written. Kubelet's calls are retried until the volume has disappeared from the node. Removing the
// volume must not take longer than the kernel's attempts to reach the target.
func (s *scenario) unstagedWithoutTarget(p *plugin, fsType string) {
	v := s.newCSIVolume(p, "away-"+fsType, smallest(fsType), fsType)
	path := v.relayed(map[string]string{"ctrl_loss_tmo": "10", "reconnect_delay": "1"})
	defer path.Close()
	v.step("stage", v.stage)
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("the target is away", func(ctx context.Context) (string, error) {
		path.set(refuses)
		return "", statesBecome(ctx, v.context[connect.KeyNQN], []string{"connecting"})
	})
	v.step("write without sync", func(context.Context) (string, error) { return "", emptyFileWithoutSync(v.published + "/unsynced") })
	start, calls := time.Now(), 0
	repeated := func(name string, call func(context.Context) (string, error)) {
		v.step(name+", repeated until it succeeds", func(ctx context.Context) (string, error) {
			for tick := time.Tick(500 * time.Millisecond); ; <-tick {
				calls++
				once, cancel := context.WithTimeout(ctx, 4*time.Second)
				_, err := call(once)
				cancel()
				switch status.Code(err) {
				case codes.OK:
					return fmt.Sprintf("%d calls", calls), nil
				case codes.DeadlineExceeded, codes.Aborted, codes.Unavailable:
				default:
					return "", err
				}
				if ctx.Err() != nil {
					return "", errors.Join(ctx.Err(), err)
				}
			}
		})
	}
	repeated("unpublish", v.unpublish)
	repeated("unstage", v.unstage)
	v.step("nothing is left", func(ctx context.Context) (string, error) {
		s.figures = fmt.Sprintf("%.1f s and %d calls", time.Since(start).Seconds(), calls)
		return v.gone(ctx)
	})
	path.set(whole)
	v.step("the target is back: stage", v.stage)
	v.step("publish", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("nothing is left", v.gone)
	v.delete()
}
