package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"
)

// A meter measures calls.
type meter struct {
	testbed    *testbed
	controller *controller
	out        io.Writer
}

// perCall limits a call. The sidecars give up after a minute, but lists may take longer here.
const perCall = 30 * time.Minute

func (m meter) measure(ctx context.Context, name string, calls, inFlight int, call func(context.Context, int) (string, error)) {
	times := make([]time.Duration, calls)
	var mu sync.Mutex
	failed, codes, note := 0, map[string]int{}, ""
	rpcs, cpu, began := m.testbed.calls(), m.controller.cpu(), time.Now()
	var g errgroup.Group
	g.SetLimit(inFlight)
	for i := range calls {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, perCall)
			defer cancel()
			start := time.Now()
			said, err := call(ctx, i)
			times[i] = time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			if said != "" {
				note = said
			}
			if err != nil {
				failed++
				codes[status.Code(err).String()]++
			}
			return nil
		})
	}
	_ = g.Wait() // its functions do not return errors
	took := time.Since(began)
	slices.Sort(times)
	if failed > 0 {
		note += fmt.Sprint(codes)
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond)) }
	fmt.Fprintf(m.out, "%-34s %9.1f %8.0f %8s %8s %8d %10d %9d %9.1f  %s\n", name, took.Seconds(), float64(calls)/took.Seconds(),
		ms(times[calls/2]), ms(times[calls*99/100]), failed, m.testbed.calls()-rpcs, m.controller.rssMiB(), (m.controller.cpu() - cpu).Seconds(), note)
}
