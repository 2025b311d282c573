package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A report holds the results of all measurements.
type report struct {
	target  string
	real    bool
	rounds  int
	levels  []level
	python  *figures // nil if not measured
	lost    int      // calls without a response from rpc_http_proxy.py
	saving  []saving
	volumes int // cycles of volumes in each round; 0 if not measured
	bare    volumeFigures
	byCSI   volumeFigures
	atPeak  int // number of calls in flight that the limits apply to
	rss     int // KiB, idle after the first call
	rssLoad int // KiB, idle after the load
	rssIdle int // KiB, with idle connections
}

func (r *report) at(inFlight int) (level, bool) {
	for _, x := range r.levels {
		if x.inFlight == inFlight {
			return x, true
		}
	}
	return level{}, false
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "target: %s\nspdk-proxy: in a separate process, with TLS, passwords, roles, queues and a log file\nfigures are medians of %d rounds, in which everything is measured in turn; ratios are medians of the rounds' ratios\n", r.target, r.rounds)
	table(out, "\nspdk_get_version on the socket and through the proxy, as a user without a tenant:", "in flight\tsocket calls/s\tp50 ms\tp99 ms\tproxy calls/s\tp50 ms\tp99 ms\tratio\tproxy CPU µs/call\t", func(w io.Writer) {
		for _, l := range r.levels {
			x := l.medians()
			fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%.0f\t%s\t%s\t%.2f\t%d\t\n", l.inFlight,
				x.raw.perSecond, ms(x.raw.p50), ms(x.raw.p99), x.proxy.perSecond, ms(x.proxy.p50), ms(x.proxy.p99),
				l.ratio(proxyToSocket), x.proxy.cpuPerCall.Microseconds())
		}
	})
	table(out, "\nThe server's CPU time per call, compared with a server that only forwards; and calls on one stream:",
		"in flight\tfloor POST µs\tPOST µs\tratio\tfloor stream µs\tstream µs\tratio\tstream/POST\tstream calls/s\tp50 ms\tp99 ms\tstream/socket\t", func(w io.Writer) {
			for _, l := range r.levels {
				x := l.medians()
				fmt.Fprintf(w, "%d\t%d\t%d\t%.2f\t%d\t%d\t%.2f\t%.2f\t%.0f\t%s\t%s\t%.2f\t\n", l.inFlight,
					x.floor.cpuPerCall.Microseconds(), x.proxy.cpuPerCall.Microseconds(), l.ratio(postToFloor),
					x.streamFloor.cpuPerCall.Microseconds(), x.stream.cpuPerCall.Microseconds(), l.ratio(streamToFloor), l.ratio(streamToPost),
					x.stream.perSecond, ms(x.stream.p50), ms(x.stream.p99), l.ratio(streamToSocket))
			}
		})
	table(out, "\nspdk_get_version on the proxy's local socket (listen_unix), over one connection as on the target's socket:", "in flight\tsocket calls/s\tlocal calls/s\tp50 ms\tp99 ms\tratio\tproxy CPU µs/call\t", func(w io.Writer) {
		for _, l := range r.levels {
			x := l.medians()
			fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%s\t%s\t%.2f\t%d\t\n", l.inFlight, x.raw.perSecond, x.local.perSecond, ms(x.local.p50), ms(x.local.p99),
				l.ratio(localToSocket), x.local.cpuPerCall.Microseconds())
		}
	})
	table(out, "\na tenant's user with a quota, through the proxy: spdk_get_version, and a mixture (bdev_get_bdevs, bdev_lvol_get_lvols, nvmf_get_subsystems, bdev_lvol_create, bdev_lvol_delete):",
		"in flight\tversion calls/s\tp50 ms\tp99 ms\tproxy CPU µs/call\tmixture calls/s\tp50 ms\tp99 ms\tproxy CPU µs/call\t", func(w io.Writer) {
			for _, l := range r.levels {
				x := l.medians()
				fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%d\t%.0f\t%s\t%s\t%d\t\n", l.inFlight,
					x.tenant.perSecond, ms(x.tenant.p50), ms(x.tenant.p99), x.tenant.cpuPerCall.Microseconds(),
					x.mixture.perSecond, ms(x.mixture.p50), ms(x.mixture.p99), x.mixture.cpuPerCall.Microseconds())
			}
		})
	table(out, "\nnvmf_subsystem_add_host and nvmf_subsystem_remove_host through the proxy, without target.save and with it, where each change is on disk before it is answered:",
		"in flight\tcalls/s\tp50 ms\tp99 ms\tsaved calls/s\tp50 ms\tp99 ms\tratio\t", func(w io.Writer) {
			for _, x := range r.saving {
				fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%.0f\t%s\t%s\t%.2f\t\n", x.inFlight, x.without.perSecond, ms(x.without.p50), ms(x.without.p99),
					x.with.perSecond, ms(x.with.p50), ms(x.with.p99), x.with.perSecond/x.without.perSecond)
			}
		})
	if r.python != nil {
		fmt.Fprintf(out, "\nrpc_http_proxy.py, %d in flight: %.0f calls/s, p50 %s ms, p99 %s ms, %d calls lost\n", r.atPeak, r.python.perSecond, ms(r.python.p50), ms(r.python.p99), r.lost)
	}
	if r.volumes > 0 {
		title := fmt.Sprintf("\n%d volumes created, published, unpublished and deleted, %d in flight: by a bare loop on the socket, which makes the same changes without any checks, and by CSI calls; medians of %d rounds, in turn:", r.volumes, volumesInFlight, r.rounds)
		table(out, title, "\tvolumes/s\t"+strings.Join(steps, " p50 ms\t")+" p50 ms\tvolumes/s in each round\t", func(w io.Writer) {
			for _, x := range []struct {
				name string
				f    *volumeFigures
			}{{"bare loop", &r.bare}, {"CSI", &r.byCSI}} {
				fmt.Fprintf(w, "%s\t%.0f\t", x.name, x.f.rate())
				for i := range steps {
					fmt.Fprintf(w, "%s\t", ms(x.f.p50(i)))
				}
				fmt.Fprintf(w, "%.0f\t\n", x.f.perSecond)
			}
		})
		fmt.Fprintf(out, "CSI/bare loop: %.2f; RPCs per volume through CSI: %.1f; CPU time per volume through CSI: %s\n", ratioOfRates(r.byCSI, r.bare), r.byCSI.rpcsPerVolume(), r.byCSI.cpuPerVolume())
	}
	fmt.Fprintf(out, "\nresident memory of the idle proxy: %s after the first call, %s after the load\n", mib(r.rss), mib(r.rssLoad))
	table(out, "", "limit\tfigure\tresult\t", func(w io.Writer) {
		for _, b := range r.bounds() {
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", b.name, b.figure, b.verdict)
		}
	})
}

// costs returns the CPU time per call as a multiple of that of another server.
func (f figures) costs(beside figures) float64 {
	return float64(f.cpuPerCall) / float64(max(1, beside.cpuPerCall))
}

// A bound holds a limit for production and the measured figure.
type bound struct{ name, figure, verdict string }

func (r *report) bounds() (list []bound) {
	add := func(name, figure string, applies, holds bool) {
		verdict := "FAIL"
		switch {
		case !applies:
			verdict = "-"
		case holds:
			verdict = "pass"
		}
		list = append(list, bound{name, figure, verdict})
	}
	if l, ok := r.at(r.atPeak); ok {
		x := l.medians()
		least := func(bound string, least, ratio float64) {
			add(fmt.Sprintf("≥ %g × %s, %d in flight, real target", least, bound, r.atPeak), fmt.Sprintf("%.2f", ratio), r.real, ratio >= least)
		}
		most := func(server string, most float64, other string, ratio float64) {
			add(fmt.Sprintf("%s ≤ %g × the CPU time of %s, %d in flight, real target", server, most, other, r.atPeak), fmt.Sprintf("%.2f", ratio), r.real, ratio <= most)
		}
		least("socket", 0.95, l.ratio(proxyToSocket))
		most("POST", 1.25, "its floor", l.ratio(postToFloor))
		most("stream", 1.5, "its floor", l.ratio(streamToFloor))
		most("stream", 0.65, "a POST", l.ratio(streamToPost))
		least("socket on a stream", 0.9, l.ratio(streamToSocket))
		least("socket on the local socket", 0.95, l.ratio(localToSocket))
		if r.python != nil {
			times := x.proxy.perSecond / r.python.perSecond
			add(fmt.Sprintf("≥ 50 × rpc_http_proxy.py, %d in flight, real target", r.atPeak), fmt.Sprintf("%.0f", times), r.real, times >= 50)
		} else {
			add(fmt.Sprintf("≥ 50 × rpc_http_proxy.py, %d in flight, real target", r.atPeak), "RPC_HTTP_PROXY is not set", false, false)
		}
		cpu := func(bound string, f figures) {
			add(fmt.Sprintf("≤ 60 µs CPU per call, %d in flight, %s, simulated target", r.atPeak, bound), fmt.Sprintf("%d µs", f.cpuPerCall.Microseconds()), !r.real, f.cpuPerCall <= 60*time.Microsecond)
		}
		cpu("spdk_get_version", x.proxy)
		cpu("a tenant's spdk_get_version", x.tenant)
		cpu("a tenant's mixture", x.mixture)
	}
	if r.volumes > 0 {
		ratio := ratioOfRates(r.byCSI, r.bare)
		add(fmt.Sprintf("≥ 0.6 × bare loop for volumes, %d in flight, real target", volumesInFlight), fmt.Sprintf("%.2f", ratio), r.real, ratio >= 0.6)
	}
	if l, ok := r.at(1); ok {
		x := l.medians()
		added := x.proxy.p50 - x.raw.p50
		add("≤ 0.3 ms added to p50, 1 in flight, open TLS connection", ms(added)+" ms", true, added <= 300*time.Microsecond)
	}
	add(fmt.Sprintf("≤ 64 MiB with %d idle TLS connections", idleConnections), mib(r.rssIdle), true, r.rssIdle <= 64<<10)
	return list
}

func table(out io.Writer, title, head string, rows func(io.Writer)) {
	if title != "" {
		fmt.Fprintln(out, title)
	} else {
		fmt.Fprintln(out)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, head)
	rows(w)
	_ = w.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d.Microseconds())/1000) }

func mib(kib int) string { return fmt.Sprintf("%.1f MiB", float64(kib)/1024) }
