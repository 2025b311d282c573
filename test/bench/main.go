// Command bench measures what spdk-proxy costs: calls per second and latencies
// of the target's socket, many calls on one connection, beside the same through
// spdk-proxy with TLS, in one run on one target; what a tenant's user pays for
// being one; SPDK's rpc_http_proxy.py, if $RPC_HTTP_PROXY names it; and memory. It
// holds the figures against what production asks for.
//
// The target is the one behind $SPDK_SOCK, on which the bench makes an lvstore (in
// $SPDK_AIO_FILE if that is set, or in memory) and takes it away again, or else a
// simulated one in a process of its own.
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

const (
	atPeak          = 64 // calls in flight that the bounds are about
	idleConnections = 1000
	pythonSpan      = 6 * time.Second
)

func bench(ctx context.Context, poll, span time.Duration, levels string) (err error) {
	socket, target, stopTarget, err := startTarget(ctx, poll)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTarget()) }()
	w, err := makeWorld(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	proxy, err := startProxy(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.stop()) }()

	r := &report{target: target, real: os.Getenv("SPDK_SOCK") != "", atPeak: atPeak}
	if _, err := measureProxy(ctx, proxy, user, version, 1, 200*time.Millisecond); err != nil {
		return err
	}
	if r.rss, err = proxy.rss(ctx); err != nil {
		return err
	}
	for level := range strings.SplitSeq(levels, ",") {
		n, err := strconv.Atoi(level)
		if err != nil || n < 1 {
			return fmt.Errorf("-in-flight: %q is no number of calls", level)
		}
		x := row{inFlight: n}
		if x.raw, err = measureSocket(ctx, socket, n, span); err != nil {
			return err
		}
		if x.proxy, err = measureProxy(ctx, proxy, user, version, n, span); err != nil {
			return err
		}
		if x.tenant, err = measureProxy(ctx, proxy, tenantUser, version, n, span); err != nil {
			return err
		}
		if x.mixt, err = measureProxy(ctx, proxy, tenantUser, w.mixture(), n, span); err != nil {
			return err
		}
		r.rows = append(r.rows, x)
	}
	if script := os.Getenv("RPC_HTTP_PROXY"); script != "" {
		f, lost, err := measurePython(ctx, script, socket, atPeak, pythonSpan)
		if err != nil {
			return err
		}
		r.python, r.lost = &f, lost
	}
	if r.rssLoad, err = proxy.rss(ctx); err != nil {
		return err
	}
	if r.rssIdle, err = proxy.rssWithIdle(ctx, idleConnections); err != nil {
		return err
	}
	r.print(os.Stdout)
	return nil
}
