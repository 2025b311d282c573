package targetmetrics

import (
	"maps"
	"slices"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func writeNVMf(w *writer, n figures.NVMf) {
	if n.Known {
		w.one("spdk_nvmf_subsystems", gauge, "NVMe-oF subsystems, without discovery.", float64(n.Subsystems))
		w.one("spdk_nvmf_namespaces", gauge, "Namespaces of all subsystems.", float64(n.Namespaces))
		w.one("spdk_nvmf_hosts", gauge, "Hosts that subsystems admit by name.", float64(n.Hosts))
		w.one("spdk_nvmf_any_host_subsystems", gauge, "Subsystems that admit every host.", float64(n.AnyHosts))
		if len(n.Listeners) > 0 {
			w.family("spdk_nvmf_listeners", gauge, "Listeners of all subsystems, by transport.")
			for _, transport := range sorted(n.Listeners) {
				w.count("spdk_nvmf_listeners", labelled("transport", transport), uint64(n.Listeners[transport]))
			}
		}
	}
	if len(n.PollGroups) == 0 {
		return
	}
	w.one("spdk_nvmf_controllers", gauge, "Connected controllers, which belong to hosts.", float64(n.Controllers()))
	each := func(name, kind, help string, value func(figures.PollGroup) uint64) {
		w.family(name, kind, help)
		for _, g := range n.PollGroups {
			w.count(name, labelled("poll_group", g.Name), value(g))
		}
	}
	w.family("spdk_nvmf_queue_pairs", gauge, "Connected queue pairs, by poll group.")
	for _, g := range n.PollGroups {
		w.count("spdk_nvmf_queue_pairs", labelled("poll_group", g.Name, "type", "admin"), g.AdminQueuePairs)
		w.count("spdk_nvmf_queue_pairs", labelled("poll_group", g.Name, "type", "io"), g.IOQueuePairs)
	}
	w.family("spdk_nvmf_queue_pairs_connected_total", counter, "Queue pairs that have been connected, by poll group.")
	for _, g := range n.PollGroups {
		w.count("spdk_nvmf_queue_pairs_connected_total", labelled("poll_group", g.Name, "type", "admin"), g.AdminQueuePairsTotal)
		w.count("spdk_nvmf_queue_pairs_connected_total", labelled("poll_group", g.Name, "type", "io"), g.IOQueuePairsTotal)
	}
	each("spdk_nvmf_pending_commands", gauge, "Commands that wait for a free bdev I/O, by poll group.", func(g figures.PollGroup) uint64 { return g.Pending })
	each("spdk_nvmf_commands_completed_total", counter, "Completed NVMe commands, by poll group.", func(g figures.PollGroup) uint64 { return g.Completed })
}

func writeISCSI(w *writer, i figures.ISCSI) {
	if !i.Known {
		return
	}
	w.one("spdk_iscsi_target_nodes", gauge, "iSCSI target nodes.", float64(i.TargetNodes))
	w.one("spdk_iscsi_luns", gauge, "LUNs of all target nodes.", float64(i.LUNs))
	w.one("spdk_iscsi_connections", gauge, "iSCSI connections.", float64(i.Connections))
}

func writeReactors(w *writer, f *figures.Figures) {
	each := func(name, kind, help string, value func(figures.Reactor) float64) {
		if len(f.Reactors) == 0 {
			return
		}
		w.family(name, kind, help)
		for _, r := range f.Reactors {
			w.sample(name, labelled("core", number(r.Core)), value(r))
		}
	}
	each("spdk_reactor_busy_seconds_total", counter, "Time in which the reactor found work.", func(r figures.Reactor) float64 { return r.Busy })
	each("spdk_reactor_idle_seconds_total", counter, "Time in which the reactor found no work.", func(r figures.Reactor) float64 { return r.Idle })
	each("spdk_reactor_threads", gauge, "SPDK threads that run on the reactor.", func(r figures.Reactor) float64 { return float64(r.Threads) })
	if len(f.Buffers) == 0 {
		return
	}
	w.family("spdk_iobuf_buffers_total", counter, "Buffers that a module took, by pool and by where they came from: the thread's cache or the pool.")
	for _, b := range f.Buffers {
		w.count("spdk_iobuf_buffers_total", labelled("module", b.Module, "pool", b.Pool, "source", "cache"), b.FromCache)
		w.count("spdk_iobuf_buffers_total", labelled("module", b.Module, "pool", b.Pool, "source", "pool"), b.FromPool)
	}
	w.family("spdk_iobuf_retries_total", counter, "Times that no buffer was free and a module had to wait, by pool.")
	for _, b := range f.Buffers {
		w.count("spdk_iobuf_retries_total", labelled("module", b.Module, "pool", b.Pool), b.Retries)
	}
}

// minPollers is the minimum limit on the number of pollers with series. A target has several
// pollers per core.
const minPollers = 1000

func writeThreads(w *writer, f *figures.Figures, limit int) {
	limit = max(limit, minPollers)
	if threads := f.Threads[:min(len(f.Threads), limit)]; len(threads) > 0 {
		labels := make([]string, len(threads))
		for i, t := range threads {
			labels[i] = labelled("thread", t.Name)
		}
		w.family("spdk_thread_busy_seconds_total", counter, "Time in which the thread found work.")
		for i, t := range threads {
			w.sample("spdk_thread_busy_seconds_total", labels[i], t.Busy)
		}
		w.family("spdk_thread_idle_seconds_total", counter, "Time in which the thread found no work.")
		for i, t := range threads {
			w.sample("spdk_thread_idle_seconds_total", labels[i], t.Idle)
		}
		w.family("spdk_thread_pollers", gauge, "Pollers of the thread: active ones run in each round, timed ones periodically.")
		for i, t := range threads {
			w.count("spdk_thread_pollers", labels[i]+`,type="active"`, t.Active)
			w.count("spdk_thread_pollers", labels[i]+`,type="timed"`, t.Timed)
			w.count("spdk_thread_pollers", labels[i]+`,type="paused"`, t.Paused)
		}
	}
	pollers := f.Pollers[:min(len(f.Pollers), limit)]
	if len(pollers) == 0 {
		return
	}
	w.family("spdk_poller_runs_total", counter, "Runs of the poller.")
	for _, p := range pollers {
		w.count("spdk_poller_runs_total", labelled("thread", p.Thread, "poller", p.Name), p.Runs)
	}
	w.family("spdk_poller_busy_runs_total", counter, "Runs of the poller that found work.")
	for _, p := range pollers {
		w.count("spdk_poller_busy_runs_total", labelled("thread", p.Thread, "poller", p.Name), p.BusyRuns)
	}
}
