// Command soak runs spdk-proxy for a long time under faults and load. It kills and restarts the
// target, makes the proxy reload valid and invalid configurations, and runs slow and hostile
// clients, 256 streams and a user who makes too many calls. Meanwhile, tenants create and delete
// volumes. Each tenant checks that every response belongs to its own request and that no volume is
// lost. At the end, soak prints a table, and fails if any check has failed.
//
// The soak must not depend on how the proxy works: it uses only HTTPS, WebSockets, the log and
// /proc.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// A plan contains the options for a run.
type plan struct {
	span, kill, reload time.Duration
	tenants, workers   int
	over               string // overPOST, overStream or overBoth
	dir                string
}

func main() {
	simulate := flag.String("simulate", "", "run the simulated target at this socket; the soak starts itself with it")
	data := flag.String("data", "", "data directory of the simulated target")
	var p plan
	flag.DurationVar(&p.span, "for", 10*time.Minute, "duration")
	flag.DurationVar(&p.kill, "kill", 20*time.Second, "time between two kills of the target")
	flag.DurationVar(&p.reload, "reload", 7*time.Second, "time between two reloads of the proxy")
	flag.IntVar(&p.tenants, "tenants", 4, "number of tenants")
	flag.IntVar(&p.workers, "workers", 4, "number of clients of each tenant")
	flag.StringVar(&p.over, "over", overBoth, "how clients make calls: post, stream or both")
	flag.StringVar(&p.dir, "dir", "", "directory for configuration, log and data, which is kept; a temporary directory by default")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *simulate != "":
		err = runSimulation(ctx, *simulate, *data)
	case p.over != overPOST && p.over != overStream && p.over != overBoth:
		err = fmt.Errorf("-over is %q: use post, stream or both", p.over)
	default:
		err = soak(ctx, p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// soak runs a first round, measures the resources of the idle proxy, runs the long round, and
// measures again.
func soak(ctx context.Context, p plan) (err error) {
	w, err := newTestbed(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	fmt.Printf("target: %s, killed every %s; proxy: reloaded every %s; load: %d tenants with %d clients each, over %s; duration: %s\n", w.targetName, p.kill, p.reload, p.tenants, p.workers, p.over, p.span)

	if err := w.round(ctx, min(p.span/10+p.kill, time.Minute)); err != nil {
		return err
	}
	before, err := w.idleUsage(ctx)
	if err != nil {
		return err
	}
	if err := w.longRound(ctx, p.span); err != nil {
		return err
	}
	after, err := w.idleUsage(ctx)
	if err != nil {
		return err
	}
	if err := w.recount(ctx); err != nil {
		return err
	}
	return w.report(before, after)
}
