package figures

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// whole returns the parameters, other than the name, that make a histogram count the I/O on all
// channels.
func (b *bench) whole() string {
	if b.target.Release().Before(rpcschema.MustRelease("v25.05")) {
		return `"enable":true`
	}
	return `"enable":true,"min_nsec":0,"max_nsec":18446744073709551615`
}

func (b *bench) enable(name, params string) {
	b.Helper()
	b.ok("bdev_enable_histogram", `{"name":"`+name+`",`+params+`}`)
}

func (b *bench) readHistograms(names ...string) { b.reader.names = names }

func histogram(t require.TestingT, f *Figures, name string) Histogram {
	i := slices.IndexFunc(f.Histograms, func(h Histogram) bool { return h.Bdev == name })
	require.GreaterOrEqual(t, i, 0, name)
	return f.Histograms[i]
}

// Apart from rounding, counts are exact. An operation may be counted in the bucket of a latency
// that is up to 1/128 longer.
func TestLatencyCountsAreNearlyExact(t *testing.T) {
	for _, release := range []string{"v24.01", "v25.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.fill()
			b.enable("lvs0/thin", b.whole())
			b.readHistograms("lvs0/thin")
			var took []time.Duration
			for range 20000 {
				took = append(took, 1+time.Duration(rand.Uint64()>>(28+rand.IntN(36))))
			}
			for _, bound := range LatencyBounds {
				took = append(took, time.Duration(bound*1e9))
			}
			require.True(t, b.target.DoLatencies("lvs0/thin", spdkrpc.BdevIOTypeRead, took...))
			f, methods := b.read()
			assert.Contains(t, methods, "bdev_get_histogram")
			h := histogram(t, f, "lvs0/thin")
			require.NoError(t, h.Err)
			assert.Equal(t, "lvs0", h.Store)
			assert.Equal(t, "thin", h.Volume)
			assert.EqualValues(t, len(took), h.Latencies.Count())
			counted, sum := uint64(0), 0.0
			for i, bound := range LatencyBounds {
				counted += h.Latencies.Counts[i]
				within := func(limit float64) (n uint64) {
					for _, d := range took {
						if float64(d) <= limit {
							n++
						}
					}
					return n
				}
				assert.LessOrEqual(t, counted, within(bound*1e9), "%g s", bound)
				assert.GreaterOrEqual(t, counted, within(bound*1e9*127/128-1), "%g s", bound)
			}
			for _, d := range took {
				sum += d.Seconds()
			}
			assert.InEpsilon(t, sum, h.Latencies.Sum, 1.0/256)
		})
	}
}

// Each bucket begins where the previous bucket ends.
func TestBucketsAreAdjacent(t *testing.T) {
	next := uint64(0)
	for i := range buckets {
		low, high := bucket(i)
		require.Equal(t, next, low, i)
		require.LessOrEqual(t, float64(high-low), float64(low)/128+.5, i)
		next = high + 1
	}
	assert.Zero(t, next, "the last bucket ends at the largest number")
}

// Latencies.Sum is accurate to 1/256, even if every latency is the shortest or the longest in its
// bucket.
func TestLatencySumIsNearlyExact(t *testing.T) {
	counts := make([]byte, 8*buckets)
	for i := 1; i < buckets; i += 3 {
		var l Latencies
		counts[8*i] = 1
		l.add(counts, 1)
		counts[8*i] = 0
		low, high := bucket(i)
		require.InEpsilon(t, float64(low), l.Sum, 1.0/256, i)
		require.InEpsilon(t, float64(high), l.Sum, 1.0/256, i)
	}
}

// If a histogram cannot be read, the result contains the reason, and all other figures.
func TestUnknownLatenciesNameTheReason(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.fill()
			b.enable("m0", b.whole())
			b.readHistograms("lvs0/thin", "nobody", "m0")
			var f *Figures
			for i, failing := range []bool{true, true, false} {
				f, _ = b.read()
				assert.Equal(t, failing, len(f.Failures) == 1, i)
				assert.Len(t, f.Volumes, 3)
				assert.NotEmpty(t, f.Threads)
				b.clock = b.clock.Add(10 * time.Second)
			}
			require.ErrorIs(t, histogram(t, f, "lvs0/thin").Err, ErrNoHistogram)
			require.ErrorIs(t, histogram(t, f, "nobody").Err, ErrNoBdev)
			require.NoError(t, histogram(t, f, "m0").Err)
			assert.Empty(t, histogram(t, f, "m0").Volume)

			b.enable("lvs0/thin", b.whole())
			b.ok("bdev_malloc_create", `{"name":"nobody","num_blocks":16384,"block_size":4096}`)
			b.enable("nobody", `"enable":true`)
			b.clock = b.clock.Add(time.Minute)
			for range 2 {
				f, _ = b.read()
			}
			require.NoError(t, histogram(t, f, "lvs0/thin").Err)
			if release < "v25.05" {
				require.NoError(t, histogram(t, f, "nobody").Err)
			} else {
				require.ErrorIs(t, histogram(t, f, "nobody").Err, ErrPartialHistogram, "it would leave out I/O")
			}
		})
	}
}

// Reading ten histograms causes as many calls as reading one histogram. Five scrapers together
// cause less than one call per second.
func TestTenHistogramsCauseAsManyCallsAsOne(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	b.ok("iscsi_create_portal_group", `{"tag":1,"portals":[{"host":"127.0.0.1","port":"3260"}]}`)
	b.ok("iscsi_create_initiator_group", `{"tag":1,"initiators":["ANY"],"netmasks":["ANY"]}`)
	b.ok("iscsi_create_target_node", `{"name":"t","alias_name":"t","pg_ig_maps":[{"pg_tag":1,"ig_tag":1}],"luns":[{"bdev_name":"lvs0/thick","lun_id":0}],"queue_depth":8}`)
	names := []string{"lvs0/thin"}
	for i := range 9 {
		name := fmt.Sprint("n", i)
		b.ok("bdev_malloc_create", `{"name":"`+name+`","num_blocks":16,"block_size":512}`)
		names = append(names, name)
	}
	for _, name := range names {
		b.enable(name, b.whole())
	}
	b.readHistograms(names...)
	b.read()
	const readings = 120 // within 20 minutes
	calls, histograms := 0, 0
	for range readings {
		b.clock = b.clock.Add(10 * time.Second)
		f, methods := b.read()
		require.Empty(t, f.Failures)
		calls += f.Calls
		for _, m := range methods {
			if m == getHistogram {
				histograms++
			}
		}
	}
	assert.Equal(t, readings, histograms, "one for each reading")
	assert.Less(t, calls, readings*10, "calls in 10 s")
	f, _ := b.read()
	assert.Len(t, f.Histograms, 10)
}

// A slow histogram is read rarely, and does not delay other histograms.
func TestSlowHistogramsAreReadRarely(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	b.enable("m0", b.whole())
	b.enable("lvs0/thin", b.whole())
	b.readHistograms("m0", "lvs0/thin")
	read := map[any]int{}
	ask := func(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
		if method == getHistogram {
			if read[params["name"]]++; params["name"] == "m0" {
				b.clock = b.clock.Add(time.Second)
			}
		}
		return b.ask(ctx, method, params)
	}
	for range 9 {
		b.reader.Read(t.Context(), Target{Up: true, Release: b.target.Release(), Ask: ask})
		b.clock = b.clock.Add(10 * time.Second)
	}
	assert.Equal(t, map[any]int{"m0": 1, "lvs0/thin": 8}, read)
	b.clock = b.clock.Add(10 * time.Second)
	b.reader.Read(t.Context(), Target{Up: true, Release: b.target.Release(), Ask: ask})
	assert.Equal(t, 2, read["m0"])
}

// When the target is down or has been restarted, earlier histograms are dropped.
func TestRestartDropsHistograms(t *testing.T) {
	b := newBench(t, "v26.05")
	b.fill()
	b.enable("m0", b.whole())
	b.readHistograms("m0")
	f, _ := b.read()
	require.NoError(t, histogram(t, f, "m0").Err)
	b.target.Inject(spdktest.Fault{Method: getHistogram, Do: spdktest.Crash})
	b.clock = b.clock.Add(10 * time.Second)
	f, _ = b.read()
	assert.False(t, f.Up)
	assert.Empty(t, f.Histograms)
	require.NoError(t, b.target.Restart())
	b.reader.Read(t.Context(), Target{Phase: "startup", Release: b.target.Release()})
	f, _ = b.read()
	assert.True(t, f.Up)
	require.ErrorIs(t, histogram(t, f, "m0").Err, ErrNoBdev)
}

func TestLatenciesAreSubtracted(t *testing.T) {
	var a, b Latencies
	a.Counts[3], a.Sum = 5, 1
	b.Counts[3], b.Counts[4], b.Sum = 7, 1, 3
	d, ok := b.Since(&a)
	assert.True(t, ok)
	assert.EqualValues(t, 3, d.Count())
	assert.InDelta(t, 2, d.Sum, 0)
	a.Counts[4] = 2
	d, ok = b.Since(&a)
	assert.False(t, ok, "one count has decreased")
	assert.Zero(t, d)
}

// encoded returns a response of v26.05 with n latencies in each bucket.
func encoded(n byte) json.RawMessage {
	counts := make([]byte, 8*buckets)
	for i := range buckets {
		counts[8*i] = n
	}
	return fmt.Appendf(nil, `{"histogram":"%s","granularity":7,"min_range":0,"max_range":57,"tsc_rate":2400000000}`, base64.StdEncoding.EncodeToString(counts))
}

func TestInvalidHistogramsAreRejected(t *testing.T) {
	_, err := readLatencies(encoded(1))
	require.NoError(t, err)
	for _, raw := range []string{
		`[]`, `{}`, `{"histogram":"AAAAAAAAAAA=","granularity":7,"min_range":0,"max_range":57,"tsc_rate":1}`, `{"histogram":"!","bucket_shift":7,"tsc_rate":1}`,
		`{"histogram":"AAAAAAAAAAA=","bucket_shift":7,"tsc_rate":0}`, `{"histogram":7,"bucket_shift":7,"tsc_rate":1}`,
	} {
		_, err := readLatencies(json.RawMessage(raw))
		require.ErrorIs(t, err, errNotHistogram, raw)
	}
}

// BenchmarkHistogram measures the proxy's cost of reading one histogram.
func BenchmarkHistogram(b *testing.B) {
	for name, raw := range map[string]json.RawMessage{"empty": encoded(0), "full": encoded(1)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readLatencies(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
