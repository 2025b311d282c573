package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/replica"
	"github.com/spdkgate/spdkgate/driver/request"
	"github.com/spdkgate/spdkgate/test/suites/kernel/control"
)

// throughRelays makes the node reach the replicas over paths that can be cut.
func (v *replicatedVolume) throughRelays(ctx context.Context) (paths []*relay, err error) {
	r, err := request.ParseReplicated(v.csi.context[request.KeyReplicated])
	if err != nil {
		return nil, err
	}
	for _, x := range r.Replicas {
		path, err := newRelay(control.Address + ":" + x.Export[connect.KeyTargetPort])
		if err != nil {
			return nil, err
		}
		x.Export[connect.KeyTargetAddr], x.Export[connect.KeyTargetPort] = "127.0.0.1", path.port()
		paths = append(paths, path)
	}
	v.csi.context[request.KeyReplicated] = r.Format()
	return paths, nil
}

// movedAway loses its connections during writes. The host then moves the volume to another machine.
// When the connections are restored, no write of this node may succeed, and its I/O must end.
func (v *replicatedVolume) movedAway() {
	v.step("create the volume", v.create)
	var paths []*relay
	v.step("use paths that can be cut", func(ctx context.Context) (_ string, err error) {
		paths, err = v.throughRelays(ctx)
		return "", err
	})
	v.use()
	v.step("cut off", func(context.Context) (string, error) {
		for _, p := range paths {
			p.set(drops)
		}
		return "", nil
	})
	v.waits()
	v.step("report the writes", func(context.Context) (string, error) { return "", v.report() })
	v.step("the volume is moved and written elsewhere", func(ctx context.Context) (string, error) {
		_, err := v.ask(ctx, control.TargetCall{Do: control.Move})
		return "", err
	})
	before := v.count
	v.step("connected again: the writes fail", func(ctx context.Context) (string, error) {
		start := time.Now()
		for _, p := range paths {
			p.set(whole)
		}
		ended := make(chan error, 1)
		go func() { ended <- v.writers.Wait() }()
		select {
		case err := <-ended:
			v.mu.Lock()
			defer v.mu.Unlock()
			if err == nil || v.count != before {
				return "", fmt.Errorf("%d writes were acknowledged, %d of them before the cut; error %w", v.count, before, err)
			}
			v.figures = fmt.Sprintf("refused after %.1f s: %v", time.Since(start).Seconds(), err)
			return v.figures, nil
		case <-ctx.Done():
			return "", fmt.Errorf("the writes neither fail nor succeed; the plugin's log ends with %s", v.csi.lastLog())
		}
	})
	v.step("tell the other node", func(ctx context.Context) (string, error) {
		_, err := v.ask(ctx, control.TargetCall{Do: control.Failed})
		return "", err
	})
	v.csi.step("unpublish", v.csi.unpublish)
	v.csi.step("unstage", v.csi.unstage)
	v.csi.step("nothing is left", v.csi.gone)
}

// movedHere gets the volume of a node that is cut off.
func (v *replicatedVolume) movedHere(oneServer bool) {
	v.again()
	if oneServer {
		v.without(1)
		v.call(control.Continue, 1)
		v.step("publish to the node, again", func(ctx context.Context) (string, error) { // as csi-attacher does
			return v.published(ctx, control.TargetCall{Do: control.Publish})
		})
	}
	v.both()
	v.step("wait until the first node's writes failed", func(ctx context.Context) (string, error) {
		_, err := v.ask(ctx, control.TargetCall{Do: control.Await})
		return "", err
	})
	v.step("writes go on", v.more(300))
	v.step("both replicas are in sync", func(ctx context.Context) (string, error) {
		w, err := v.witnessNow(ctx)
		if err == nil && (w.InSync != replica.SetOf(0, 1) || w.Writer.Node != nodeID) {
			err = errors.New("the first node has changed the witness")
		}
		return fmt.Sprintf("%+v", w), err
	})
	v.end()
	v.step("delete the volume", func(ctx context.Context) (string, error) { return "", v.csi.target.remove(ctx, v.csi.name) })
}
