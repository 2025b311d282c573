package observe

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spdkgate/spdkgate/proxy/figures"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/iohistory"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An ioFollower samples the target's I/O.
type ioFollower struct {
	reader  *figures.Reader // only one goroutine uses it
	history *iohistory.History
}

// KeepsIO reports whether the configuration enables the I/O history.
func (o *Observer) KeepsIO() bool { return o.io != nil }

// FollowIO samples the target's I/O, until ctx ends.
func (o *Observer) FollowIO(ctx context.Context) {
	if !o.KeepsIO() {
		return
	}
	ticker := time.NewTicker(iohistory.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			o.SampleIO(ctx)
		}
	}
}

// SampleIO takes one sample. Only one goroutine at a time may call it.
func (o *Observer) SampleIO(ctx context.Context) {
	o.Gate.Contain("I/O history", func() {
		ctx, cancel := context.WithTimeout(ctx, figuresWait)
		defer cancel()
		t := o.targetToRead(ctx)
		made := o.io.reader.Read(ctx, t)
		latencies := map[string]iohistory.Latency{}
		for _, bdev := range o.io.history.Busiest(made) {
			d, err := figures.ReadDistribution(ctx, t.Ask, bdev)
			if ctx.Err() != nil || spdkrpc.KindOf(err) == spdkrpc.Unreachable {
				break
			}
			latencies[bdev] = iohistory.Latency{Distribution: d, Err: err}
		}
		o.io.history.Note(made, latencies)
	})
}

var histogramStates = map[iohistory.HistogramState]spdkrpc.ProxyHistogramState{
	iohistory.HistogramUnknown: spdkrpc.ProxyHistogramStateUnknown, iohistory.HistogramOff: spdkrpc.ProxyHistogramStateOff,
	iohistory.HistogramPartial: spdkrpc.ProxyHistogramStatePartial, iohistory.HistogramOn: spdkrpc.ProxyHistogramStateOn,
}

// IOHistory serves spdkgate_get_io_history.
func (o *Observer) IOHistory(_ context.Context, r *gate.Request) (any, error) {
	var found []iohistory.Bdev
	if name, named := r.Params["name"].(string); named {
		found = o.io.history.Of(name)
	} else {
		found = o.io.history.Latest()
	}
	slices.SortFunc(found, func(a, b iohistory.Bdev) int {
		return cmp.Or(cmp.Compare(a.Alias, b.Alias), cmp.Compare(a.Name, b.Name))
	})
	list := make([]spdkrpc.ProxyBdevIO, len(found))
	for i, b := range found {
		list[i] = spdkrpc.ProxyBdevIO{Name: b.Name, Histogram: histogramStates[b.Histogram], Samples: make([]spdkrpc.ProxyIOSample, len(b.Samples))}
		if b.Alias != "" {
			list[i].Alias = &b.Alias
		}
		for k, s := range b.Samples {
			list[i].Samples[k] = spdkrpc.ProxyIOSample{
				Time:          s.At.Unix(),
				ReadIOsPerSec: float64(s.Read.PerSecond), ReadBytesPerSec: float64(s.Read.BytesPerSecond), ReadLatencyUS: float64(s.Read.Latency),
				WriteIOsPerSec: float64(s.Write.PerSecond), WriteBytesPerSec: float64(s.Write.BytesPerSecond), WriteLatencyUS: float64(s.Write.Latency),
			}
			if s.P99 > 0 {
				list[i].Samples[k].LatencyP50US, list[i].Samples[k].LatencyP99US = new(float64(s.Median)), new(float64(s.P99))
			}
		}
	}
	return list, nil
}
