// Command bench measures the cost of spdk-proxy. In one run on one target, it measures:
//   - calls per second and latencies directly on the target's socket, through spdk-proxy with TLS,
//     and on spdk-proxy's local socket;
//   - the same on a stream (WebSocket) of the proxy, and on two floors: a handler and a stream that
//     only forward calls;
//   - the same for a tenant's user;
//   - the same for SPDK's rpc_http_proxy.py, if $RPC_HTTP_PROXY is its path;
//   - changes to who can access data, through a proxy that saves them before it responds
//     (target.save), and through one that does not;
//   - volumes per second through CSI calls, compared with a bare loop on the target's socket;
//   - the proxy's memory.
//
// It compares the figures with the limits for production.
//
// The target is the one at $SPDK_SOCK, or else a simulated one in a separate process. The bench
// creates an lvstore on it, in $SPDK_AIO_FILE or in memory, and deletes it at the end.
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
	simulate := flag.Bool("simulate", false, "run the simulated target; the bench starts itself with this flag")
	floorOf := flag.String("floor", "", "run the floor in front of this socket; the bench starts itself with this flag")
	certificate := flag.String("certificate", "", "directory of the floor's certificate")
	poll := flag.Duration("poll", 0, "interval at which the simulated target polls its sockets; a real one polls every 4ms")
	span := flag.Duration("span", 2*time.Second, "duration of each measurement")
	levels := flag.String("in-flight", "1,16,64,256", "numbers of calls in flight")
	volumes := flag.Int("volumes", 200, "number of volumes to create, publish, unpublish and delete; 0 for none")
	profile := flag.String("profile", "", "file for a CPU profile of spdk-proxy, recorded with 64 calls in flight")
	program := flag.String("proxy", "", "spdk-proxy to measure, such as one built from another commit; by default, the bench builds one")
	flag.Parse()
	// The clients share the processors with the proxy: collect garbage less often.
	debug.SetGCPercent(400)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *simulate:
		err = runSimulation(ctx, *poll)
	case *floorOf != "":
		err = runFloor(ctx, *floorOf, *certificate)
	default:
		err = bench(ctx, *poll, *span, *levels, *volumes, *program, *profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const (
	atPeak          = 64 // calls in flight to which the limits apply
	idleConnections = 1000
	volumesInFlight = 32
	pythonSpan      = 6 * time.Second
)

func bench(ctx context.Context, poll, span time.Duration, levels string, volumes int, program, profile string) (err error) {
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
	proxy, err := startProxy(ctx, socket, program, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.stop()) }()

	bare, err := startFloor(ctx, socket, proxy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()

	r := &report{target: target, real: os.Getenv("SPDK_SOCK") != "", atPeak: atPeak}
	if _, err := measureProxy(ctx, proxy, user, version, 1, 200*time.Millisecond); err != nil {
		return err
	}
	if r.rss, err = proxy.rss(ctx); err != nil {
		return err
	}
	for level := range strings.FieldsFuncSeq(levels, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(level)
		if err != nil || n < 1 {
			return fmt.Errorf("-in-flight: %q is not a number of calls", level)
		}
		x := row{inFlight: n}
		recorded := func() error { return nil }
		if profile != "" && n == atPeak {
			recorded = proxy.record(ctx, profile, 5*(warmUp+span))
		}
		if x.raw, err = measureSocket(ctx, socket, n, span); err != nil {
			return err
		}
		if x.proxy, err = measureProxy(ctx, proxy, user, version, n, span); err != nil {
			return err
		}
		if err := measureFloors(ctx, &x, bare, proxy, span); err != nil {
			return err
		}
		if x.local, err = measureLocal(ctx, proxy, n, span); err != nil {
			return err
		}
		if x.tenant, err = measureProxy(ctx, proxy, tenantUser, version, n, span); err != nil {
			return err
		}
		if x.mixture, err = measureProxy(ctx, proxy, tenantUser, w.mixture(), n, span); err != nil {
			return err
		}
		if err := recorded(); err != nil {
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
	if err := measureSaving(ctx, r, proxy, socket, program, span); err != nil {
		return err
	}
	if volumes > 0 {
		r.volumes = volumes
		if r.bare, r.byCSI, err = measureVolumes(ctx, proxy, socket, volumes, volumesInFlight); err != nil {
			return err
		}
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
