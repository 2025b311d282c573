package main

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// A round holds the figures of one round for one number of calls in flight.
type round struct {
	raw, proxy      figures // spdk_get_version, on the socket and through the proxy
	floor           figures // the same by POST through a handler that only forwards calls
	stream          figures // the same on one of the proxy's streams
	streamFloor     figures // the same on a stream that only forwards calls
	local           figures // the same on the proxy's local socket
	tenant, mixture figures // spdk_get_version and the mixture, through the proxy as a tenant's user
}

// measurementsPerRound is the number of figures in a round.
const measurementsPerRound = 8

// measureRound measures everything once. Figures that are compared with each other are measured in
// succession.
func measureRound(ctx context.Context, w *tenantObjects, p *proxy, f *floor, socket string, inFlight int, span time.Duration) (x round, err error) {
	if x.raw, err = measureSocket(ctx, socket, inFlight, span); err != nil {
		return x, err
	}
	if x.floor, err = f.measurePosts(ctx, p, inFlight, span); err != nil {
		return x, err
	}
	if x.proxy, err = measureProxy(ctx, p, user, version, inFlight, span); err != nil {
		return x, err
	}
	if x.stream, err = p.measureStream(ctx, inFlight, span); err != nil {
		return x, err
	}
	if x.streamFloor, err = f.measureStream(ctx, p, inFlight, span); err != nil {
		return x, err
	}
	if x.local, err = measureLocal(ctx, p, inFlight, span); err != nil {
		return x, err
	}
	if x.tenant, err = measureProxy(ctx, p, tenantUser, version, inFlight, span); err != nil {
		return x, err
	}
	x.mixture, err = measureProxy(ctx, p, tenantUser, w.mixture(), inFlight, span)
	return x, err
}

// A level holds the rounds with one number of calls in flight.
type level struct {
	inFlight int
	rounds   []round
}

// figures returns the median of each figure.
func (x level) figures(of func(round) figures) figures {
	return figures{
		perSecond:  medianOf(x.rounds, func(r round) float64 { return of(r).perSecond }),
		p50:        medianOf(x.rounds, func(r round) time.Duration { return of(r).p50 }),
		p99:        medianOf(x.rounds, func(r round) time.Duration { return of(r).p99 }),
		cpuPerCall: medianOf(x.rounds, func(r round) time.Duration { return of(r).cpuPerCall }),
	}
}

// ratio returns the median of the rounds' ratios.
func (x level) ratio(of func(round) float64) float64 { return medianOf(x.rounds, of) }

// medians returns the medians of all figures as if they were the figures of one round.
func (x level) medians() round {
	return round{
		raw: x.figures(func(r round) figures { return r.raw }), proxy: x.figures(func(r round) figures { return r.proxy }),
		floor: x.figures(func(r round) figures { return r.floor }), stream: x.figures(func(r round) figures { return r.stream }),
		streamFloor: x.figures(func(r round) figures { return r.streamFloor }), local: x.figures(func(r round) figures { return r.local }),
		tenant: x.figures(func(r round) figures { return r.tenant }), mixture: x.figures(func(r round) figures { return r.mixture }),
	}
}

// The following functions return ratios of a round's figures.
func proxyToSocket(r round) float64  { return r.proxy.perSecond / r.raw.perSecond }
func localToSocket(r round) float64  { return r.local.perSecond / r.raw.perSecond }
func streamToSocket(r round) float64 { return r.stream.perSecond / r.raw.perSecond }
func postToFloor(r round) float64    { return r.proxy.costs(r.floor) }
func streamToFloor(r round) float64  { return r.stream.costs(r.streamFloor) }
func streamToPost(r round) float64   { return r.stream.costs(r.proxy) }

// medianOf returns the median of the numbers that the function of returns for the items in list.
func medianOf[T any, N cmp.Ordered](list []T, of func(T) N) N {
	numbers := make([]N, len(list))
	for i, x := range list {
		numbers[i] = of(x)
	}
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}
