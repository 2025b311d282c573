// Command soak runs spdk-proxy for long while everything around it fails: its target is
// killed and started again, its configuration, roles and certificate are reloaded, sound ones and
// broken ones, slow and hostile clients come, one user floods it. Tenants work
// on beside that, each checking that every answer is the one to its own question
// and that no volume of theirs is lost. At the end it prints a table, and fails if
// anything was wrong.
//
// It may not know how the proxy works: it sees HTTPS, the log, and /proc.
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

// A plan is how long and how wild.
type plan struct {
	span, kill, reload time.Duration
	tenants, workers   int
	dir                string
}

func main() {
	simulate := flag.String("simulate", "", "be the simulated target at this socket (for the soak itself)")
	data := flag.String("data", "", "its data folder")
	var p plan
	flag.DurationVar(&p.span, "for", 10*time.Minute, "how long")
	flag.DurationVar(&p.kill, "kill", 20*time.Second, "how often the target is killed")
	flag.DurationVar(&p.reload, "reload", 7*time.Second, "how often the proxy reloads")
	flag.IntVar(&p.tenants, "tenants", 4, "how many tenants")
	flag.IntVar(&p.workers, "workers", 4, "how many clients each has")
	flag.StringVar(&p.dir, "dir", "", "keep everything here: configuration, log, data")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *simulate != "" {
		err = runSimulation(ctx, *simulate, *data)
	} else {
		err = soak(ctx, p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// soak is the whole of it: a first round, after which what is open is counted,
// then the long one, and a count again.
func soak(ctx context.Context, p plan) (err error) {
	w, err := newWorld(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	fmt.Printf("target: %s; killed every %s, proxy reloaded every %s, %d tenants with %d clients each, for %s\n", w.targetName, p.kill, p.reload, p.tenants, p.workers, p.span)

	if err := w.round(ctx, min(p.span/10+p.kill, time.Minute)); err != nil {
		return err
	}
	before, err := w.atRest(ctx)
	if err != nil {
		return err
	}
	if err := w.longRound(ctx, p.span); err != nil {
		return err
	}
	after, err := w.atRest(ctx)
	if err != nil {
		return err
	}
	if err := w.recount(ctx); err != nil {
		return err
	}
	return w.report(before, after)
}
