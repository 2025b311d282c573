package figures

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// perElement is how many of SPDK's buckets form one element of a Distribution. Within an element,
// the longest latency exceeds the shortest by at most 1/32.
const perElement = 4

// A Distribution counts I/O operations by latency, with a resolution sufficient for percentiles. It
// occupies 15 KiB of memory.
type Distribution struct {
	counts [buckets / perElement]uint64
	ticks  float64 // ticks per second
}

// ReadDistribution immediately reads the latencies of one bdev from a target. Its errors are those
// of Histogram.Err.
func ReadDistribution(ctx context.Context, ask Ask, bdev string) (*Distribution, error) {
	raw, err := ask(ctx, getHistogram, map[string]any{"name": bdev})
	if err != nil {
		return nil, histogramError(err)
	}
	return readDistribution(raw)
}

func readDistribution(raw json.RawMessage) (*Distribution, error) {
	counts, ticks, err := readCounts(raw)
	if err != nil {
		return nil, err
	}
	d := &Distribution{ticks: ticks}
	for i := range buckets {
		d.counts[i/perElement] += binary.NativeEndian.Uint64(counts[8*i:])
	}
	return d, nil
}

// histogramError adds ErrNoHistogram to an error of bdev_get_histogram if the error means that the
// histogram is not enabled.
func histogramError(err error) error {
	var answered *spdkrpc.Error
	// since v25.05, SPDK returns NoSpace if the histogram was never enabled
	if errors.As(err, &answered) && (answered.Kind == spdkrpc.Failed || answered.Kind == spdkrpc.NoSpace) {
		return fmt.Errorf("%w: %w", ErrNoHistogram, err)
	}
	return err
}

// Empty reports whether d contains no operations.
func (d *Distribution) Empty() bool { return d.counts == [len(d.counts)]uint64{} }

// Since returns the operations counted since an earlier reading of the same process. Like
// Latencies.Since, it returns false if a count has decreased.
func (d *Distribution) Since(before *Distribution) (since *Distribution, ok bool) {
	since = &Distribution{ticks: d.ticks}
	for i := range d.counts {
		if d.counts[i] < before.counts[i] {
			return nil, false
		}
		since.counts[i] = d.counts[i] - before.counts[i]
	}
	return since, true
}

// Percentile returns the latency, in seconds, that this share of operations did not exceed. The
// result is at least the true value, and at most 1/32 greater. Without operations, it is 0.
func (d *Distribution) Percentile(share float64) float64 {
	total := uint64(0)
	for _, n := range d.counts {
		total += n
	}
	wanted, sum := share*float64(total), uint64(0)
	for i, n := range d.counts {
		if sum += n; n > 0 && float64(sum) >= wanted {
			_, high := bucket(i*perElement + perElement - 1)
			return float64(high) / d.ticks
		}
	}
	return 0
}
