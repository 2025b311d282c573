package figures

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// readReactors parses the result of framework_get_reactors.
func (r *Reader) readReactors(raw json.RawMessage) error {
	var result spdkrpc.FrameworkReactors
	if err := json.Unmarshal(raw, &result); err != nil {
		return err
	}
	r.reactors, r.uptime = nil, 0
	for _, c := range result.Reactors {
		one := Reactor{Core: uint64(c.Lcore), Busy: seconds(c.Busy, result.TickRate), Idle: seconds(c.Idle, result.TickRate), Threads: len(c.LwThreads)}
		r.reactors = append(r.reactors, one)
		// A reactor in interrupt mode does not count all time. The first thread starts with the
		// target, so use the longest time of any reactor or thread.
		r.uptime = max(r.uptime, one.Busy+one.Idle)
		for _, t := range c.LwThreads {
			r.uptime = max(r.uptime, seconds(t.Elapsed, result.TickRate))
		}
	}
	return nil
}

// readBuffers parses the result of iobuf_get_stats.
func (r *Reader) readBuffers(raw json.RawMessage) error {
	var result []spdkrpc.IobufModuleStats
	if err := json.Unmarshal(raw, &result); err != nil {
		return err
	}
	r.buffers = nil
	for _, m := range result {
		for pool, s := range map[string]spdkrpc.IobufPoolStats{"small": m.SmallPool, "large": m.LargePool} {
			r.buffers = append(r.buffers, BufferPool{Module: m.Module, Pool: pool, FromCache: s.Cache, FromPool: s.Main, Retries: s.Retry})
		}
	}
	slices.SortStableFunc(r.buffers, func(a, b BufferPool) int {
		return cmp.Or(cmp.Compare(a.Module, b.Module), cmp.Compare(a.Pool, b.Pool))
	})
	r.buffers = merged(r.buffers, func(a, b BufferPool) bool { return a.Module == b.Module && a.Pool == b.Pool }, func(into *BufferPool, b BufferPool) {
		into.FromCache, into.FromPool, into.Retries = into.FromCache+b.FromCache, into.FromPool+b.FromPool, into.Retries+b.Retries
	})
	return nil
}

// readThreads parses the result of thread_get_stats.
func (r *Reader) readThreads(raw json.RawMessage) error {
	var result spdkrpc.ThreadStatsList
	if err := json.Unmarshal(raw, &result); err != nil {
		return err
	}
	r.threads = nil
	for _, t := range result.Threads {
		r.threads = append(r.threads, Thread{
			Name: t.Name, Busy: seconds(t.Busy, result.TickRate), Idle: seconds(t.Idle, result.TickRate),
			Active: t.ActivePollersCount, Timed: t.TimedPollersCount, Paused: t.PausedPollersCount,
		})
	}
	slices.SortStableFunc(r.threads, func(a, b Thread) int { return cmp.Compare(a.Name, b.Name) })
	r.threads = merged(r.threads, func(a, b Thread) bool { return a.Name == b.Name }, func(into *Thread, t Thread) {
		into.Busy, into.Idle = into.Busy+t.Busy, into.Idle+t.Idle
		into.Active, into.Timed, into.Paused = into.Active+t.Active, into.Timed+t.Timed, into.Paused+t.Paused
	})
	return nil
}

// readPollers parses the result of thread_get_pollers.
func (r *Reader) readPollers(raw json.RawMessage) error {
	var result spdkrpc.ThreadPollersList
	if err := json.Unmarshal(raw, &result); err != nil {
		return err
	}
	r.pollers = nil
	for _, t := range result.Threads {
		for _, list := range [][]spdkrpc.ThreadPoller{t.ActivePollers, t.TimedPollers, t.PausedPollers} {
			for _, p := range list {
				r.pollers = append(r.pollers, Poller{Thread: t.Name, Name: p.Name, Runs: p.RunCount, BusyRuns: p.BusyCount})
			}
		}
	}
	slices.SortStableFunc(r.pollers, func(a, b Poller) int {
		return cmp.Or(cmp.Compare(a.Thread, b.Thread), cmp.Compare(a.Name, b.Name))
	})
	r.pollers = merged(r.pollers, func(a, b Poller) bool { return a.Thread == b.Thread && a.Name == b.Name }, func(into *Poller, p Poller) {
		into.Runs, into.BusyRuns = into.Runs+p.Runs, into.BusyRuns+p.BusyRuns
	})
	return nil
}

// merged combines equal items of a sorted list by adding them up.
func merged[T any](list []T, same func(a, b T) bool, add func(into *T, from T)) (out []T) {
	for _, one := range list {
		if n := len(out); n > 0 && same(out[n-1], one) {
			add(&out[n-1], one)
			continue
		}
		out = append(out, one)
	}
	return out
}
