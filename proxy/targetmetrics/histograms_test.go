package targetmetrics

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/figures"
)

// counted returns a volume's histogram with these numbers of operations that took up to 1 us, up to
// 10 s, and longer.
func counted(fast, slow, beyond uint64) figures.Histogram {
	h := figures.Histogram{Bdev: "lvs0/v", Store: "lvs0", Volume: "v"}
	h.Latencies.Counts[0], h.Latencies.Counts[len(figures.LatencyBounds)-1], h.Latencies.Counts[len(figures.LatencyBounds)] = fast, slow, beyond
	h.Latencies.Sum = float64(slow)*8 + float64(beyond)*16
	return h
}

func withHistograms(list ...figures.Histogram) *figures.Figures {
	return &figures.Figures{Up: true, Histograms: list}
}

func families(t *testing.T, text []byte) map[string]*dto.MetricFamily {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err, "%s", text)
	return families
}

// written returns the volume's histogram, or nil if there is none.
func written(t *testing.T, text []byte) *dto.Histogram {
	f := families(t, text)["spdk_lvol_io_duration_seconds"]
	if f == nil {
		return nil
	}
	require.Len(t, f.Metric, 1)
	assert.Equal(t, dto.MetricType_HISTOGRAM, f.GetType())
	return f.Metric[0].Histogram
}

func TestHistogramIsWritten(t *testing.T) {
	e := New(10)
	h := written(t, e.Text(withHistograms(counted(100, 200, 300))).Plain)
	require.NotNil(t, h)
	assert.Zero(t, h.GetSampleCount(), "operations before the first reading are not included")
	text := e.Text(withHistograms(counted(101, 202, 303))).Plain
	h = written(t, text)
	assert.EqualValues(t, 6, h.GetSampleCount())
	assert.InDelta(t, 2*8+3*16, h.GetSampleSum(), 0)
	require.Len(t, h.Bucket, len(figures.LatencyBounds)+1)
	assert.LessOrEqual(t, len(h.Bucket), 25)
	for i, b := range h.Bucket[:len(figures.LatencyBounds)] {
		assert.InDelta(t, figures.LatencyBounds[i], b.GetUpperBound(), 0)
		want := 1
		if i == len(figures.LatencyBounds)-1 {
			want = 3
		}
		assert.EqualValues(t, want, b.GetCumulativeCount(), "cumulative")
	}
	assert.EqualValues(t, 6, h.Bucket[len(figures.LatencyBounds)].GetCumulativeCount(), "+Inf")
	assert.Contains(t, string(text), "\nspdk_lvol_io_duration_seconds_bucket{lvstore=\"lvs0\",lvol=\"v\",le=\"1e-06\"} 1\n")
}

// The counts never decrease, and include each operation exactly once, although SPDK drops the
// counts of closed channels.
func TestHistogramsNeverDecrease(t *testing.T) {
	e := New(10)
	count := func(f *figures.Figures) uint64 { return written(t, e.Text(f).Plain).GetSampleCount() }
	assert.Zero(t, count(withHistograms(counted(1000, 10, 0))))
	assert.EqualValues(t, 11, count(withHistograms(counted(1010, 11, 0))))
	assert.EqualValues(t, 11, count(withHistograms(counted(500, 12, 0))), "a channel was closed, so the remaining counts are not new")
	assert.EqualValues(t, 15, count(withHistograms(counted(503, 13, 0))))

	failed := counted(0, 0, 0)
	failed.Err = errors.New("not enabled")
	text := e.Text(withHistograms(failed)).Plain
	assert.Nil(t, written(t, text), "unknown")
	assert.InDelta(t, 0, samples(t, text)["spdk_io_duration_up lvs0/v"], 0)
	assert.EqualValues(t, 15, count(withHistograms(counted(900, 900, 0))), "the histogram was not read for a while")
	assert.EqualValues(t, 16, count(withHistograms(counted(900, 901, 0))))

	e.Text(&figures.Figures{Up: false})
	assert.EqualValues(t, 16, count(withHistograms(counted(950, 950, 0))), "the target was down")
	assert.EqualValues(t, 17, count(withHistograms(counted(950, 951, 0))))
}

// Two names of one volume lead to a single series. Other bdevs have a separate metric.
func TestNamesOfOneVolumeShareAHistogram(t *testing.T) {
	alias, uuid := counted(1, 0, 0), counted(1, 0, 0)
	uuid.Bdev = "be5c5ef7-e10e-4084-87bf-000000000000"
	text := New(10).Text(withHistograms(alias, uuid, figures.Histogram{Bdev: "nvme0n1"})).Plain
	require.NotNil(t, written(t, text))
	assert.Equal(t, 1, strings.Count(string(text), "\nspdk_lvol_io_duration_seconds_count{"))
	bdevs := families(t, text)["spdk_bdev_io_duration_seconds"]
	require.Len(t, bdevs.Metric, 1)
	assert.Equal(t, "nvme0n1", bdevs.Metric[0].Label[0].GetValue())
	assert.Len(t, families(t, text)["spdk_io_duration_up"].Metric, 3)
	assert.NotContains(t, families(t, New(10).Text(withHistograms()).Plain), "spdk_io_duration_up", "no histogram was requested")
}
