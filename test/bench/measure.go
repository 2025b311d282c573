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

// method is cheap for the target, so that what is measured is the way to it.
const method = "spdk_get_version"

// warmUp comes before each measurement: connections, handshakes, caches.
const warmUp = 400 * time.Millisecond

// figures of one measurement.
type figures struct {
	perSecond float64
	p50, p99  time.Duration
	all       int // calls, warm-up included
}

func measureSocket(ctx context.Context, path string, inFlight int, span time.Duration) (figures, error) {
	socket := spdkrpc.NewSocket(path)
	socket.SetLimits(jsonrpc.LimitsV2605)
	defer func() { _ = socket.Close() }()
	return measure(ctx, socket, inFlight, span)
}

func measureProxy(ctx context.Context, p *proxy, inFlight int, span time.Duration) (figures, error) {
	https, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: p.url, Username: user, Password: password, CA: p.ca, MaxConnections: inFlight})
	if err != nil {
		return figures{}, err
	}
	defer func() { _ = https.Close() }()
	return measure(ctx, https, inFlight, span)
}

// measure keeps so many calls in flight for a while, each worker asking again
// as soon as it is answered.
func measure(ctx context.Context, caller spdkrpc.Caller, inFlight int, span time.Duration) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, warmUp+span+time.Minute)
	defer cancel()
	begin := time.Now().Add(warmUp)
	end := begin.Add(span)
	var workers sync.WaitGroup
	var all atomic.Int64
	latencies := make([][]time.Duration, inFlight)
	failures := make(chan error, inFlight)
	for i := range inFlight {
		workers.Go(func() {
			for {
				asked := time.Now()
				if asked.After(end) {
					return
				}
				if err := caller.Call(ctx, method, nil, nil); err != nil {
					failures <- err
					return
				}
				all.Add(1)
				if answered := time.Now(); asked.After(begin) && answered.Before(end) {
					latencies[i] = append(latencies[i], answered.Sub(asked))
				}
			}
		})
	}
	workers.Wait()
	close(failures)
	if err := <-failures; err != nil {
		return figures{}, fmt.Errorf("with %d in flight: %w", inFlight, err)
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	if len(sorted) == 0 {
		return figures{}, fmt.Errorf("with %d in flight: no call was answered within %s", inFlight, span)
	}
	return figures{
		perSecond: float64(len(sorted)) / span.Seconds(),
		p50:       sorted[len(sorted)/2], p99: sorted[len(sorted)*99/100], all: int(all.Load()),
	}, nil
}
