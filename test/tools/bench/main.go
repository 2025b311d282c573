// Command bench measures the cost of spdk-proxy. In a single run on one target, it measures:
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
// The bench measures in several rounds, and alternates between the measurements that it compares. A
// figure is the median of all rounds. A ratio is the median of all rounds' ratios, because both
// figures of a round are measured within seconds of each other and under the same load.
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
	o := options{}
	flag.DurationVar(&o.span, "span", 800*time.Millisecond, "duration of each measurement")
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds in which everything is measured in turn")
	flag.StringVar(&o.levels, "in-flight", "1,16,64,256", "numbers of calls in flight")
	flag.IntVar(&o.volumes, "volumes", 200, "number of volumes to create, publish, unpublish and delete in each round; 0 for none")
	flag.StringVar(&o.profile, "profile", "", "file for a CPU profile of spdk-proxy, recorded with 64 calls in flight")
	flag.StringVar(&o.proxy, "proxy", "", "spdk-proxy to measure, such as one built from another commit; by default, the bench builds one")
	flag.StringVar(&o.driver, "csi", "", "the same for spdk-csi")
	flag.Parse()
	// The clients collect garbage less often, because they share the processors with the proxy.
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
		err = bench(ctx, *poll, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options contains the values of the command line's flags.
type options struct {
	span          time.Duration
	rounds        int
	levels        string
	volumes       int
	profile       string
	proxy, driver string // programs; if "", the bench builds them
}

const (
	atPeak          = 64 // number of calls in flight that the limits apply to
	idleConnections = 1000
	volumesInFlight = 32
	pythonSpan      = 6 * time.Second
)

func bench(ctx context.Context, poll time.Duration, o options) (err error) {
	if o.rounds < 1 {
		return errors.New("-rounds: must be at least 1")
	}
	socket, target, stopTarget, err := startTarget(ctx, poll)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTarget()) }()
	w, err := createTenantObjects(ctx, socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	proxy, err := startProxy(ctx, socket, o.proxy, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, proxy.stop()) }()

	bare, err := startFloor(ctx, socket, proxy)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()

	r := &report{target: target, real: os.Getenv("SPDK_SOCK") != "", atPeak: atPeak, rounds: o.rounds}
	if _, err := measureProxy(ctx, proxy, user, version, 1, 200*time.Millisecond); err != nil {
		return err
	}
	if r.rss, err = proxy.rss(ctx); err != nil {
		return err
	}
	for text := range strings.FieldsFuncSeq(o.levels, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-in-flight: %q is not a number of calls", text)
		}
		recorded := func() error { return nil }
		if o.profile != "" && n == atPeak {
			recorded = proxy.record(ctx, o.profile, time.Duration(o.rounds)*measurementsPerRound*(warmUp+o.span))
		}
		x := level{inFlight: n}
		for range o.rounds {
			one, err := measureRound(ctx, w, proxy, bare, socket, n, o.span)
			if err != nil {
				return err
			}
			x.rounds = append(x.rounds, one)
		}
		if err := recorded(); err != nil {
			return err
		}
		r.levels = append(r.levels, x)
	}
	if script := os.Getenv("RPC_HTTP_PROXY"); script != "" {
		f, lost, err := measurePython(ctx, script, socket, atPeak, pythonSpan)
		if err != nil {
			return err
		}
		r.python, r.lost = &f, lost
	}
	if err := measureSaving(ctx, r, proxy, socket, o); err != nil {
		return err
	}
	if o.volumes > 0 {
		r.volumes = o.volumes
		if r.bare, r.byCSI, err = measureVolumes(ctx, proxy, socket, o, volumesInFlight); err != nil {
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
