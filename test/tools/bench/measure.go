package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// warmUp is the time before each measurement, for connections, handshakes and caches.
const warmUp = 400 * time.Millisecond

// figures holds the results of one measurement.
type figures struct {
	perSecond  float64
	p50, p99   time.Duration
	all        int           // calls, warm-up included
	cpuPerCall time.Duration // of the proxy; 0 if the calls were not made through it
}

func measureSocket(ctx context.Context, path string, inFlight int, span time.Duration) (figures, error) {
	socket := spdkrpc.NewSocket(path)
	socket.SetLimits(jsonrpc.LimitsV2605)
	defer func() { _ = socket.Close() }()
	return measure(ctx, socket, version, inFlight, span)
}

// measureLocal is like measureSocket, but on the proxy's local socket and with the proxy's CPU
// time.
func measureLocal(ctx context.Context, p *proxy, inFlight int, span time.Duration) (figures, error) {
	before := p.cpu()
	f, err := measureSocket(ctx, p.local, inFlight, span)
	if err == nil {
		f.cpuPerCall = (p.cpu() - before) / time.Duration(f.all)
	}
	return f, err
}

// measureProxy measures one user's calls through the proxy, and the proxy's CPU time for each.
func measureProxy(ctx context.Context, p *proxy, user string, w work, inFlight int, span time.Duration) (figures, error) {
	client, err := dialLean(ctx, p.url, user, password, p.ca, inFlight)
	if err != nil {
		return figures{}, err
	}
	defer func() { _ = client.Close() }()
	return measureServer(ctx, client, p.cpu, w, inFlight, span)
}

// measureServer measures calls and the server's CPU time for each call. The CPU time includes the
// warm-up.
func measureServer(ctx context.Context, caller spdkrpc.Caller, cpu func() time.Duration, w work, inFlight int, span time.Duration) (figures, error) {
	before := cpu()
	f, err := measure(ctx, caller, w, inFlight, span)
	if err == nil {
		f.cpuPerCall = (cpu() - before) / time.Duration(f.all)
	}
	return f, err
}

// A timedCaller records the latency of each call between begin and end.
type timedCaller struct {
	spdkrpc.Caller
	begin, end time.Time
	all        *atomic.Int64
	latencies  []time.Duration
}

func (t *timedCaller) Call(ctx context.Context, method string, params, result any) error {
	started := time.Now()
	if err := t.Caller.Call(ctx, method, params, result); err != nil {
		return err
	}
	t.all.Add(1)
	if answered := time.Now(); started.After(t.begin) && answered.Before(t.end) {
		t.latencies = append(t.latencies, answered.Sub(started))
	}
	return nil
}

// measure keeps inFlight calls in flight for the duration span. Each worker makes its next call as
// soon as it has received the response. If any call fails, measure returns an error.
func measure(ctx context.Context, caller spdkrpc.Caller, w work, inFlight int, span time.Duration) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, warmUp+span+time.Minute)
	defer cancel()
	begin := time.Now().Add(warmUp)
	end := begin.Add(span)
	var workers sync.WaitGroup
	var all atomic.Int64
	callers := make([]timedCaller, inFlight)
	failures := make(chan error, inFlight)
	for i := range inFlight {
		callers[i] = timedCaller{Caller: caller, begin: begin, end: end, all: &all}
		workers.Go(func() {
			for time.Now().Before(end) {
				if err := w.do(ctx, &callers[i], i); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(failures)
	if err := <-failures; err != nil {
		return figures{}, fmt.Errorf("%s with %d calls in flight: %w", w.name, inFlight, err)
	}
	var latencies []time.Duration
	for i := range callers {
		latencies = append(latencies, callers[i].latencies...)
	}
	return figuresOf(latencies, int(all.Load()), span)
}

func figuresOf(latencies []time.Duration, all int, span time.Duration) (figures, error) {
	if len(latencies) == 0 {
		return figures{}, fmt.Errorf("no call got a response within %s", span)
	}
	slices.Sort(latencies)
	return figures{
		perSecond: float64(len(latencies)) / span.Seconds(),
		p50:       latencies[len(latencies)/2], p99: latencies[len(latencies)*99/100], all: all,
	}, nil
}
