package spdktest

import (
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func init() {
	query("framework_get_reactors", (*engine).reactors)
	query("thread_get_stats", (*engine).threadStats)
	query("thread_get_pollers", (*engine).threadPollers)
	query("iobuf_get_stats", func(e *engine) ([]spdkrpc.IobufModuleStats, error) {
		stats := []spdkrpc.IobufModuleStats{}
		for _, module := range []string{"accel", "bdev"} {
			stats = append(stats, spdkrpc.IobufModuleStats{Module: module, SmallPool: spdkrpc.IobufPoolStats{CacheSize: new(uint32(128))}, LargePool: spdkrpc.IobufPoolStats{CacheSize: new(uint32(16))}})
		}
		stats[1].SmallPool.Retry = e.retries
		return stats, nil
	})
	handle("notify_get_notifications", (*engine).notifications)
}

// threadNames lists the threads on the only reactor.
func (e *engine) threadNames() []string {
	return []string{"app_thread", e.pollGroup(), "iscsi_poll_group_0"}
}

// busyIdle reports that the simulation has been busy for a quarter of the time.
func (e *engine) busyIdle() (busy, idle uint64) {
	all := ticks() - e.startTicks
	return all / 4, all - all/4
}

func (e *engine) reactors() (spdkrpc.FrameworkReactors, error) {
	busy, idle := e.busyIdle()
	one := spdkrpc.FrameworkReactor{NUMAID: new(int32), TID: new(uint64(1)), Busy: busy, Idle: idle, IRQ: new(uint64), Sys: new(uint64), Usr: new(uint64)}
	for i, name := range e.threadNames() {
		one.LwThreads = append(one.LwThreads, spdkrpc.FrameworkReactorThread{Name: name, ID: uint64(i + 1), Cpumask: "1", Elapsed: busy + idle})
	}
	return spdkrpc.FrameworkReactors{TickRate: tickRate, PID: new(uint64(1)), Reactors: []spdkrpc.FrameworkReactor{one}}, nil
}

func (e *engine) threadStats() (spdkrpc.ThreadStatsList, error) {
	busy, idle := e.busyIdle()
	list := spdkrpc.ThreadStatsList{TickRate: tickRate}
	for i, name := range e.threadNames() {
		list.Threads = append(list.Threads, spdkrpc.ThreadStats{Name: name, ID: uint64(i + 1), Cpumask: "1", Busy: busy / 3, Idle: idle / 3, ActivePollersCount: 1, TimedPollersCount: 1})
	}
	return list, nil
}

func (e *engine) threadPollers() (spdkrpc.ThreadPollersList, error) {
	list := spdkrpc.ThreadPollersList{TickRate: tickRate}
	for i, name := range e.threadNames() {
		list.Threads = append(list.Threads, spdkrpc.ThreadPollers{
			Name: name, ID: uint64(i + 1),
			ActivePollers: []spdkrpc.ThreadPoller{{Name: fmt.Sprintf("%s_poll", name), ID: 1, State: spdkrpc.ThreadPollerStateWaiting, RunCount: ticks() / 1000}},
			TimedPollers:  []spdkrpc.ThreadPoller{{Name: "timed", ID: 2, State: spdkrpc.ThreadPollerStateWaiting, RunCount: ticks() / tickRate, BusyCount: ticks() / tickRate, PeriodTicks: new(tickRate)}},
			PausedPollers: []spdkrpc.ThreadPoller{},
		})
	}
	return list, nil
}

// maxNotifications is the maximum number of notifications that a target keeps.
const maxNotifications = 1024

// notify adds a notification.
func (e *engine) notify(kind, object string) {
	e.notes = append(e.notes, spdkrpc.NotifyEvent{Type: kind, Ctx: object, ID: e.noted})
	e.noted++
	if len(e.notes) > maxNotifications {
		e.notes = e.notes[len(e.notes)-maxNotifications:]
	}
}

func (e *engine) notifications(p spdkrpc.NotifyGetNotificationsParams) ([]spdkrpc.NotifyEvent, error) {
	list := []spdkrpc.NotifyEvent{}
	for _, n := range e.notes {
		if n.ID >= value(p.ID) && uint64(len(list)) < or(p.Max, maxNotifications) {
			list = append(list, n)
		}
	}
	return list, nil
}

// DoIO adds done to a bdev's I/O statistics, as if that I/O had taken place. Tick counts are in
// nanoseconds. The result reports whether the bdev exists.
func (t *Target) DoIO(bdev string, done spdkrpc.BdevIOStatBdev) bool {
	found := false
	t.inEngine(func(e *engine) {
		b, ok := e.bdevs.find(bdev)
		if found = ok; !ok {
			return
		}
		s := &b.stat
		s.BytesRead, s.NumReadOps, s.ReadLatencyTicks = s.BytesRead+done.BytesRead, s.NumReadOps+done.NumReadOps, s.ReadLatencyTicks+done.ReadLatencyTicks
		s.BytesWritten, s.NumWriteOps, s.WriteLatencyTicks = s.BytesWritten+done.BytesWritten, s.NumWriteOps+done.NumWriteOps, s.WriteLatencyTicks+done.WriteLatencyTicks
		s.BytesUnmapped, s.NumUnmapOps, s.UnmapLatencyTicks = s.BytesUnmapped+done.BytesUnmapped, s.NumUnmapOps+done.NumUnmapOps, s.UnmapLatencyTicks+done.UnmapLatencyTicks
	})
	return found
}

// LackBuffers makes the target report that a module found no free buffer n more times.
func (t *Target) LackBuffers(n uint64) { t.inEngine(func(e *engine) { e.retries += n }) }

// inEngine runs f in the running engine, if any.
func (t *Target) inEngine(f func(*engine)) {
	t.mu.Lock()
	e := t.engine
	t.mu.Unlock()
	if e == nil {
		return
	}
	_, _ = e.do(func() (any, error) { // the engine may have died in the meantime
		f(e)
		return nil, nil
	})
}
