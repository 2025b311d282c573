package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A Rate describes the I/O of a volume or another bdev between two reads of its counters.
type Rate struct {
	Name                string
	Reads, Writes       float64 // operations per second
	BytesRead, Written  float64 // bytes per second
	ReadTime, WriteTime float64 // mean latency, in seconds
	// percentiles of the latencies in the last minute, in seconds; 0 means unknown
	Median, P99 float64
}

// IOPS returns the operations per second.
func (r Rate) IOPS() float64 { return r.Reads + r.Writes }

// Throughput returns the bytes per second.
func (r Rate) Throughput() float64 { return r.BytesRead + r.Written }

// Latency returns the mean latency of all operations, in seconds.
func (r Rate) Latency() float64 {
	if r.IOPS() == 0 {
		return 0
	}
	return (r.ReadTime*r.Reads + r.WriteTime*r.Writes) / r.IOPS()
}

// Orders maps the names of sort orders to the values by which Rates are sorted.
var Orders = map[string]func(Rate) float64{"iops": Rate.IOPS, "throughput": Rate.Throughput, "latency": Rate.Latency}

// Rates returns the rates between two Figures of a target, sorted by one of Orders in descending
// order. If all is set, the result includes bdevs that are not volumes. If the target's counters
// were not read again in between, the result is empty.
func Rates(before, now *figures.Figures, order string, all bool) (rates []Rate) {
	took := now.Clock - before.Clock
	if took <= 0 {
		return nil
	}
	former := make(map[string]figures.IO, len(before.Volumes))
	for i := range before.Volumes {
		if v := &before.Volumes[i]; v.HasIO {
			former[v.UUID] = v.IO
		}
	}
	for i := range now.Volumes {
		if v := &now.Volumes[i]; v.HasIO {
			if io, known := former[v.UUID]; known {
				rates = append(rates, rate(v.Store+"/"+v.Name, io, v.IO, took))
			}
		}
	}
	if all {
		clear(former)
		for _, b := range before.Bdevs {
			former[b.Name] = b.IO
		}
		for _, b := range now.Bdevs {
			if io, known := former[b.Name]; known {
				rates = append(rates, rate(b.Name, io, b.IO, took))
			}
		}
	}
	by := Orders[order]
	slices.SortFunc(rates, func(a, b Rate) int { return cmp.Or(cmp.Compare(by(b), by(a)), cmp.Compare(a.Name, b.Name)) })
	return rates
}

func rate(name string, before, now figures.IO, took float64) Rate {
	r := Rate{Name: name}
	r.Reads, r.BytesRead, r.ReadTime = perSecond(before.Read, now.Read, took)
	r.Writes, r.Written, r.WriteTime = perSecond(before.Write, now.Write, took)
	return r
}

func perSecond(before, now figures.Operation, took float64) (count, bytes, latency float64) {
	if now.Count <= before.Count { // no I/O, or SPDK has reset its counters
		return 0, 0, 0
	}
	n := float64(now.Count - before.Count)
	return n / took, float64(now.Bytes-before.Bytes) / took, (now.Latency - before.Latency) / n
}

// AddPercentiles adds the percentiles in the result of spdkgate_get_io_history for all bdevs.
func AddPercentiles(rates []Rate, history []spdkrpc.ProxyBdevIO) {
	last := make(map[string]spdkrpc.ProxyIOSample, len(history))
	for _, b := range history {
		name := b.Name
		if b.Alias != nil {
			name = *b.Alias
		}
		if n := len(b.Samples); n > 0 {
			last[name] = b.Samples[n-1]
		}
	}
	for i := range rates {
		if s := last[rates[i].Name]; s.LatencyP50US != nil && s.LatencyP99US != nil {
			rates[i].Median, rates[i].P99 = *s.LatencyP50US/1e6, *s.LatencyP99US/1e6
		}
	}
}

// Top returns a table of at most rows elements from the beginning of rates. If any of their
// percentiles are known, the table includes percentiles.
func (p Page) Top(title string, rates []Rate, rows int) string {
	rates = rates[:min(rows, len(rates))]
	hasPercentiles := slices.ContainsFunc(rates, func(r Rate) bool { return r.P99 > 0 })
	columns, heading := 9*6, "" // width of the figures
	if hasPercentiles {
		columns, heading = 9*8, fmt.Sprintf(" %8s %8s", "ms p50", "ms p99")
	}
	name := 12
	for _, r := range rates {
		name = max(name, utf8.RuneCountInString(fit(r.Name, 0)))
	}
	if p.Width > 0 {
		name = max(12, min(name, p.Width-columns))
	}
	var b strings.Builder
	b.WriteString(fit(title, p.Width) + "\n")
	b.WriteString(p.colour(bold, fit(fmt.Sprintf("%-*s %8s %8s %8s %8s %8s %8s", name, "VOLUME", "READ/s", "WRITE/s", "MB/s R", "MB/s W", "ms R", "ms W")+heading, p.Width)) + "\n")
	for _, r := range rates {
		line := fmt.Sprintf("%-*s %8.0f %8.0f %8.1f %8.1f %8.2f %8.2f", name, fit(r.Name, name), r.Reads, r.Writes, r.BytesRead/1e6, r.Written/1e6, 1000*r.ReadTime, 1000*r.WriteTime)
		switch {
		case r.P99 > 0:
			line += fmt.Sprintf(" %8.2f %8.2f", 1000*r.Median, 1000*r.P99)
		case hasPercentiles:
			line += fmt.Sprintf(" %8s %8s", "-", "-")
		}
		b.WriteString(fit(line, p.Width) + "\n")
	}
	return b.String()
}
