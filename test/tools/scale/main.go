// Command scale measures one spdk-csi controller, in a separate process, with many storage servers
// and many volumes. Each storage server is a simulated target behind an spdk-proxy. It prints how
// long calls take, how many RPCs they need, and how much memory and CPU time the controller uses
// for:
//
//   - creating 1,000 volumes at once, with a controller that has just started, and then again;
//   - capacity, and the list of all volumes, as requested by csi-provisioner and csi-attacher;
//   - publishing the volumes to many nodes, and as many volumes to a few nodes, which are then
//     drained; fencing one of these nodes;
//   - creating 1,000 volumes again while some storage servers are down;
//   - deleting the volumes.
//
// Targets, proxies and this program share a process, and they share the machine with the
// controller. Therefore, the figures show how the cost grows, but not the speed of a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// settings holds the parameters of a run.
type settings struct {
	targets, volumes, creates, inFlight, down, nodes, drained int
	poll, targetTimeout                                       time.Duration
}

func main() {
	var s settings
	flag.IntVar(&s.targets, "targets", 100, "number of storage servers")
	flag.IntVar(&s.volumes, "volumes", 100_000, "number of existing volumes, on all storage servers together; one in ten is exported")
	flag.IntVar(&s.creates, "creates", 1000, "number of volumes to create")
	flag.IntVar(&s.inFlight, "in-flight", 100, "calls in flight; csi-provisioner has 100 workers")
	flag.IntVar(&s.down, "down", 5, "number of storage servers to stop")
	flag.IntVar(&s.nodes, "nodes", 1000, "number of nodes that use volumes")
	flag.IntVar(&s.drained, "drained", 50, "number of nodes to drain; their volumes move to the others")
	flag.DurationVar(&s.poll, "poll", 0, "interval at which targets poll; real ones poll every 4ms")
	flag.DurationVar(&s.targetTimeout, "target-timeout", time.Minute, "targetTimeout of config.json; its default, 10s, is too short on a busy machine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if s.drained < 1 || s.drained >= s.nodes {
		fmt.Fprintln(os.Stderr, "scale: -drained must be at least 1, and less than -nodes: the others get the volumes")
		os.Exit(2)
	}
	if err := run(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, out io.Writer) (err error) {
	w, err := newTestbed(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	began := time.Now()
	if err := w.fill(ctx, s.volumes); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d storage servers with %d volumes, made in %s\n", s.targets, s.volumes, time.Since(began).Round(time.Second))
	c, err := startController(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	fmt.Fprintf(out, "%-34s %9s %8s %8s %8s %8s %10s %9s %9s  %s\n", "", "s", "calls/s", "p50 ms", "p99 ms", "failed", "RPCs", "RSS MiB", "CPU s", "")
	m := meter{w, c, out}
	steps := []struct {
		name  string
		calls int
		call  func(context.Context, int) (string, error)
	}{
		{"create, just started", s.creates, c.create("first")},
		{"create", s.creates, c.create("second")},
		{"create the first again", s.creates, c.create("first")}, // they exist, or failed
		{"capacity", 1, c.capacity},
		{fmt.Sprintf("publish to %d nodes", s.nodes), s.creates, c.publish("second", 0, s.nodes)},
		{"publish again", s.creates, c.publish("second", 0, s.nodes)},
		{fmt.Sprintf("publish to %d nodes", s.drained), s.creates, c.publish("first", 0, s.drained)},
		{"list of all volumes", 1, c.list},
		{fmt.Sprintf("drain of %d nodes", s.drained), s.creates, c.move("first", s.drained, s.nodes)},
		{"fence a node", 1, c.fence(s.drained)},
		{"unpublish", s.creates, c.unpublish("first", s.drained, s.nodes-s.drained)},
		{"unpublish from all nodes", s.creates, c.unpublish("second", 0, s.nodes)},
		{"delete", s.creates, c.delete("first")},
	}
	for _, step := range steps {
		m.measure(ctx, step.name, step.calls, s.inFlight, step.call)
	}
	if s.down > 0 {
		if err := w.stop(s.down); err != nil {
			return err
		}
		m.measure(ctx, fmt.Sprintf("create, %d servers down", s.down), s.creates, s.inFlight, c.create("third"))
		m.measure(ctx, fmt.Sprintf("capacity, %d servers down", s.down), 1, 1, c.capacity)
	}
	return ctx.Err()
}
