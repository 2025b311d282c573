package iohistory

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// distribution returns a distribution with n operations that took 2.048 ms, and a hundredth as many
// that took 1.048 s.
func distribution(t *testing.T, n uint64) *figures.Distribution {
	t.Helper()
	counts := make([]byte, 8*58*128)
	binary.NativeEndian.PutUint64(counts[8*15*128:], n) // begins at 2^(15+7-1) ns
	binary.NativeEndian.PutUint64(counts[8*24*128:], n/100)
	d, err := figures.ReadDistribution(t.Context(), func(context.Context, string, map[string]any) (json.RawMessage, error) {
		return json.RawMessage(fmt.Sprintf(`{"histogram":%q,"granularity":7,"min_range":0,"max_range":57,"tsc_rate":1000000000}`, base64.StdEncoding.EncodeToString(counts))), nil
	}, "any")
	require.NoError(t, err)
	return d
}

func (f *feed) nextWith(minutes int, reads map[string]uint64, latencies map[string]Latency) {
	f.latencies = latencies
	f.next(minutes, reads)
}

func (f *feed) last(name string) Sample {
	samples := f.of(name)
	if len(samples) == 0 {
		return Sample{}
	}
	return samples[len(samples)-1]
}

// Percentiles cover the operations between two reads of a histogram if the bdev was idle in all
// intervals in between.
func TestPercentilesCoverOneInterval(t *testing.T) {
	f := newFeed()
	with := func(n uint64) map[string]Latency {
		return map[string]Latency{"uuid-a": {Distribution: distribution(t, n)}}
	}
	busy := map[string]uint64{"a": 600}
	f.next(1, busy)
	f.nextWith(1, busy, with(100))
	assert.Zero(t, f.last("uuid-a").P99, "there is no earlier reading")
	f.nextWith(1, busy, with(10100))
	assert.InDelta(t, 2097, f.last("uuid-a").Median, 66)
	assert.InDelta(t, 2097, f.last("uuid-a").P99, 66, "a hundredth of the operations took longer")
	assert.Equal(t, HistogramOn, f.history.Latest()[0].Histogram)
	f.nextWith(1, busy, with(10199))
	assert.InDelta(t, 2097, f.last("uuid-a").Median, 66)

	f.next(1, nil)
	assert.Zero(t, f.last("uuid-a").P99)
	f.nextWith(1, busy, with(20199))
	assert.Positive(t, f.last("uuid-a").P99, "there was no I/O between the readings")

	f.next(1, busy)
	assert.Zero(t, f.last("uuid-a").P99, "the histogram was not read")
	f.nextWith(1, busy, with(40000))
	assert.Zero(t, f.last("uuid-a").P99, "the difference covers two intervals")
	f.nextWith(1, busy, with(39000))
	assert.Zero(t, f.last("uuid-a").P99, "counts have decreased")
	f.restarts++
	f.nextWith(1, busy, with(50000))
	f.nextWith(1, busy, with(60000))
	assert.Positive(t, f.last("uuid-a").P99)
	f.restarts++
	f.nextWith(1, busy, with(70000))
	f.nextWith(1, busy, with(80000))
	assert.Positive(t, f.last("uuid-a").P99)
}

func TestHistogramErrorsMapToStates(t *testing.T) {
	for want, read := range map[HistogramState]Latency{
		HistogramOff:     {Err: fmt.Errorf("%w: code -12", figures.ErrNoHistogram)},
		HistogramPartial: {Err: figures.ErrPartialHistogram},
		HistogramUnknown: {Err: errors.New("the target did not answer")},
		HistogramOn:      {Distribution: distribution(t, 100)},
	} {
		f := newFeed()
		f.next(1, map[string]uint64{"a": 600})
		f.nextWith(1, map[string]uint64{"a": 600}, map[string]Latency{"uuid-a": read})
		assert.Equal(t, want, f.history.Latest()[0].Histogram)
		assert.Equal(t, want, f.history.Of("uuid-a")[0].Histogram)
		f.nextWith(1, map[string]uint64{"a": 600}, map[string]Latency{"uuid-a": {Distribution: distribution(t, 0)}})
		assert.Equal(t, HistogramUnknown, f.history.Latest()[0].Histogram, "an empty histogram may be off")
	}
}

// The number of histograms that are read is limited. A bdev with a histogram is read in every
// interval, because percentiles need two consecutive reads.
func TestHistogramsOfTheBusiestBdevsAreRead(t *testing.T) {
	f := newFeed()
	reads := map[string]uint64{"idle": 0, "slow": 1}
	for i := range MaxHistograms {
		reads[fmt.Sprintf("v%02d", i)] = uint64(1000 + i)
	}
	f.next(1, reads)
	assert.Empty(t, f.history.Busiest(nil))
	assert.Empty(t, f.history.Busiest(&figures.Figures{}), "the target does not respond")
	assert.Empty(t, f.history.Busiest(f.figures()), "there was no I/O since the last reading")
	f.add(1, reads)
	assert.Empty(t, New().Busiest(f.figures()), "rates are unknown before the second reading")
	names := f.history.Busiest(f.figures())
	require.Len(t, names, MaxHistograms)
	assert.Equal(t, "uuid-v63", names[0])
	assert.NotContains(t, names, "uuid-slow")
	f.history.Note(f.figures(), map[string]Latency{"uuid-slow": {Distribution: distribution(t, 100)}})
	f.add(1, reads)
	names = f.history.Busiest(f.figures())
	require.Len(t, names, MaxHistograms)
	assert.Equal(t, "uuid-slow", names[0])
	assert.NotContains(t, names, "uuid-idle")
}
