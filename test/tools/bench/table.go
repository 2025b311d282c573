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
	rows    []row
	python  *figures // nil: not measured
	lost    int      // calls that rpc_http_proxy.py did not answer
	saving  []saving
	volumes int // cycles of volumes in each round; 0: not measured
	bare    volumeFigures
	byCSI   volumeFigures
	atPeak  int // calls in flight to which the limits apply
	rss     int // KiB, idle after the first call
	rssLoad int // KiB, idle after the load
	rssIdle int // KiB, with idle connections
}

// A row holds the figures for one number of calls in flight.
type row struct {
	inFlight        int
	raw, proxy      figures // spdk_get_version: on the socket, and through the proxy
	floor           figures // the same by POST through a handler that only forwards calls
	stream          figures // the same on one of the proxy's streams
	streamFloor     figures // the same on a stream that only forwards calls
	local           figures // the same on the proxy's local socket
	tenant, mixture figures // a tenant's user through the proxy: spdk_get_version, and the mixture
}

func (r *report) at(inFlight int) (row, bool) {
	for _, row := range r.rows {
		if row.inFlight == inFlight {
			return row, true
		}
	}
	return row{}, false
}

func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "target: %s\nspdk-proxy: in a separate process, with TLS, passwords, roles, queues and a log file\n", r.target)
	table(out, "\nspdk_get_version on the socket and through the proxy, as a user without a tenant:", "in flight\tsocket calls/s\tp50 ms\tp99 ms\tproxy calls/s\tp50 ms\tp99 ms\tratio\tproxy CPU µs/call\t", func(w io.Writer) {
		for _, x := range r.rows {
			fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%.0f\t%s\t%s\t%.2f\t%d\t\n", x.inFlight,
				x.raw.perSecond, ms(x.raw.p50), ms(x.raw.p99), x.proxy.perSecond, ms(x.proxy.p50), ms(x.proxy.p99),
				x.proxy.perSecond/x.raw.perSecond, x.proxy.cpuPerCall.Microseconds())
		}
	})
	table(out, "\nThe server's CPU time per call, compared with a server that only forwards; and calls on one stream:",
		"in flight\tfloor POST µs\tPOST µs\tratio\tfloor stream µs\tstream µs\tratio\tstream/POST\tstream calls/s\tp50 ms\tp99 ms\tstream/socket\t", func(w io.Writer) {
			for _, x := range r.rows {
				fmt.Fprintf(w, "%d\t%d\t%d\t%.2f\t%d\t%d\t%.2f\t%.2f\t%.0f\t%s\t%s\t%.2f\t\n", x.inFlight,
					x.floor.cpuPerCall.Microseconds(), x.proxy.cpuPerCall.Microseconds(), x.proxy.costs(x.floor),
					x.streamFloor.cpuPerCall.Microseconds(), x.stream.cpuPerCall.Microseconds(), x.stream.costs(x.streamFloor), x.stream.costs(x.proxy),
					x.stream.perSecond, ms(x.stream.p50), ms(x.stream.p99), x.stream.perSecond/x.raw.perSecond)
			}
		})
	table(out, "\nspdk_get_version on the proxy's local socket (listen_unix), over one connection as on the target's socket:", "in flight\tsocket calls/s\tlocal calls/s\tp50 ms\tp99 ms\tratio\tproxy CPU µs/call\t", func(w io.Writer) {
		for _, x := range r.rows {
			fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%s\t%s\t%.2f\t%d\t\n", x.inFlight, x.raw.perSecond, x.local.perSecond, ms(x.local.p50), ms(x.local.p99),
				x.local.perSecond/x.raw.perSecond, x.local.cpuPerCall.Microseconds())
		}
	})
	table(out, "\na tenant's user with a quota, through the proxy: spdk_get_version, and a mixture (bdev_get_bdevs, bdev_lvol_get_lvols, nvmf_get_subsystems, bdev_lvol_create, bdev_lvol_delete):",
		"in flight\tversion calls/s\tp50 ms\tp99 ms\tproxy CPU µs/call\tmixture calls/s\tp50 ms\tp99 ms\tproxy CPU µs/call\t", func(w io.Writer) {
			for _, x := range r.rows {
				fmt.Fprintf(w, "%d\t%.0f\t%s\t%s\t%d\t%.0f\t%s\t%s\t%d\t\n", x.inFlight,
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
		title := fmt.Sprintf("\n%d volumes created, published, unpublished and deleted, %d in flight: by a bare loop on the socket, which makes the same changes without any checks, and by CSI calls; medians of %d rounds:", r.volumes, volumesInFlight, rounds)
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
		fmt.Fprintf(out, "CPU time per volume through CSI: %s\n", r.byCSI.cpuPerVolume())
	}
	fmt.Fprintf(out, "\nresident memory of the idle proxy: %s after the first call, %s after the load\n", mib(r.rss), mib(r.rssLoad))
	table(out, "", "limit\tfigure\tresult\t", func(w io.Writer) {
		for _, b := range r.bounds() {
			fmt.Fprintf(w, "%s\t%s\t%s\t\n", b.name, b.figure, b.verdict)
		}
	})
}

// costs returns the CPU time per call as a multiple of another server's.
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
	if x, ok := r.at(r.atPeak); ok {
		ratio := x.proxy.perSecond / x.raw.perSecond
		add(fmt.Sprintf("≥ 0.95 × socket, %d in flight, real target", r.atPeak), fmt.Sprintf("%.2f", ratio), r.real, ratio >= 0.95)
		add(fmt.Sprintf("POST ≤ 1.25 × the CPU time of its floor, %d in flight, real target", r.atPeak), fmt.Sprintf("%.2f", x.proxy.costs(x.floor)), r.real, x.proxy.costs(x.floor) <= 1.25)
		add(fmt.Sprintf("stream ≤ 1.5 × the CPU time of its floor, %d in flight, real target", r.atPeak), fmt.Sprintf("%.2f", x.stream.costs(x.streamFloor)), r.real, x.stream.costs(x.streamFloor) <= 1.5)
		add(fmt.Sprintf("stream ≤ 0.65 × the CPU time of a POST, %d in flight, real target", r.atPeak), fmt.Sprintf("%.2f", x.stream.costs(x.proxy)), r.real, x.stream.costs(x.proxy) <= 0.65)
		add(fmt.Sprintf("stream ≥ 0.9 × socket, %d in flight, real target", r.atPeak), fmt.Sprintf("%.2f", x.stream.perSecond/x.raw.perSecond), r.real, x.stream.perSecond >= 0.9*x.raw.perSecond)
		local := x.local.perSecond / x.raw.perSecond
		add(fmt.Sprintf("≥ 0.95 × socket on the local socket, %d in flight, real target", r.atPeak), fmt.Sprintf("%.2f", local), r.real, local >= 0.95)
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
		ratio := r.byCSI.rate() / r.bare.rate()
		add(fmt.Sprintf("≥ 0.6 × bare loop for volumes, %d in flight, real target", volumesInFlight), fmt.Sprintf("%.2f", ratio), r.real, ratio >= 0.6)
	}
	if x, ok := r.at(1); ok {
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
