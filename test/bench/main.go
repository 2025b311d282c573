// Command bench measures what spdk-proxy costs: calls per second and latencies
// of the target's socket, many calls on one connection, beside the same through
// spdk-proxy with TLS, in one run on one target. The target is the one behind
// $SPDK_SOCK, or else a simulated one in a process of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	simulate := flag.Bool("simulate", false, "be the simulated target (for the bench itself)")
	poll := flag.Duration("poll", 0, "how often the simulated target looks at its sockets; a real one: 4ms")
	span := flag.Duration("span", 2*time.Second, "how long each figure is measured")
	levels := flag.String("in-flight", "1,16,64,256", "calls in flight")
	flag.Parse()
	// Clients share the processors with what is measured; they need not collect garbage there.
	debug.SetGCPercent(400)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *simulate {
		err = runSimulation(ctx, *poll)
	} else {
		err = bench(ctx, *poll, *span, *levels)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A row is one number of calls in flight.
type row struct {
	inFlight   int
	raw, proxy figures
	cpuPerCall time.Duration // of the proxy
}

func bench(ctx context.Context, poll, span time.Duration, levels string) (err error) {
	socket, target, stopTarget, err := startTarget(ctx, poll)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTarget()) }()
	proxy, err := startProxy(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.stop()) }()

	idle, err := proxy.idleRSS(ctx)
	if err != nil {
		return err
	}
	var rows []row
	for level := range strings.SplitSeq(levels, ",") {
		n, err := strconv.Atoi(level)
		if err != nil || n < 1 {
			return fmt.Errorf("-in-flight: %q is no number of calls", level)
		}
		r := row{inFlight: n}
		if r.raw, err = measureSocket(ctx, socket, n, span); err != nil {
			return err
		}
		before := proxy.cpu()
		if r.proxy, err = measureProxy(ctx, proxy, n, span); err != nil {
			return err
		}
		r.cpuPerCall = (proxy.cpu() - before) / time.Duration(r.proxy.all)
		rows = append(rows, r)
	}
	after, err := proxy.idleRSS(ctx)
	if err != nil {
		return err
	}
	report(target, rows, idle, after)
	return nil
}

func report(target string, rows []row, idle, after int) {
	fmt.Printf("target: %s; method: %s; spdk-proxy with TLS and its log in a file\n\n", target, method)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "in flight\tsocket calls/s\tp50 ms\tp99 ms\tproxy calls/s\tp50 ms\tp99 ms\tratio\tproxy CPU µs/call\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%.0f\t%s\t%s\t%.2f\t%d\t\n", r.inFlight,
			r.raw.perSecond, ms(r.raw.p50), ms(r.raw.p99), r.proxy.perSecond, ms(r.proxy.p50), ms(r.proxy.p99),
			r.proxy.perSecond/r.raw.perSecond, r.cpuPerCall.Microseconds())
	}
	_ = w.Flush()
	fmt.Println()
	for _, r := range rows {
		if r.inFlight == 1 {
			fmt.Printf("added p50 at 1 in flight: %s ms\n", ms(r.proxy.p50-r.raw.p50))
		}
	}
	fmt.Printf("resident memory of the proxy: %.1f MiB idle after its first call, %.1f MiB idle after the load\n", float64(idle)/1024, float64(after)/1024)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000) }
