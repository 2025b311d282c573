package figures

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

func (b *bench) distribution(name string) (*Distribution, error) {
	return ReadDistribution(b.Context(), b.ask, name)
}

// Percentiles cover the operations between two reads, and are at most 1/32 too high.
func TestPercentilesCoverOperationsBetweenReads(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		t.Run(release, func(t *testing.T) {
			b := newBench(t, release)
			b.fill()
			_, err := b.distribution("lvs0/thin")
			require.ErrorIs(t, err, ErrNoHistogram)
			b.enable("lvs0/thin", b.whole())
			require.True(t, b.target.DoLatencies("lvs0/thin", spdkrpc.BdevIOTypeRead, slices.Repeat([]time.Duration{time.Hour}, 500)...))
			before, err := b.distribution("lvs0/thin")
			require.NoError(t, err)
			assert.False(t, before.Empty())

			var took []time.Duration
			for range 5000 {
				took = append(took, 1+time.Duration(rand.Uint64()>>(28+rand.IntN(36))))
			}
			require.True(t, b.target.DoLatencies("lvs0/thin", spdkrpc.BdevIOTypeWrite, took...))
			after, err := b.distribution("lvs0/thin")
			require.NoError(t, err)
			since, ok := after.Since(before)
			require.True(t, ok)
			slices.Sort(took)
			for _, share := range []float64{0.001, 0.5, 0.9, 0.99, 1} {
				exact := took[int(math.Ceil(share*float64(len(took))))-1].Seconds()
				found := since.Percentile(share)
				assert.GreaterOrEqual(t, found, exact*(1-1e-9), "%g", share)
				assert.LessOrEqual(t, found, exact*33/32+1e-9*perElement, "%g", share)
			}
			_, ok = before.Since(after)
			assert.False(t, ok, "a count has decreased")
			none, ok := after.Since(after)
			require.True(t, ok)
			assert.True(t, none.Empty())
			assert.Zero(t, none.Percentile(0.99))
		})
	}
}
