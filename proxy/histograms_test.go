package proxy

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

const enableWhole = `{"id":1,"method":"bdev_enable_histogram","params":{"name":"lvs0/v0","enable":true,"min_nsec":0,"max_nsec":18446744073709551615}}`

// The proxy exports the latencies of a bdev if the bdev's histogram is enabled. If the latencies
// cannot be read, the proxy logs the reason once.
func TestLatencyHistogramsAreExported(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Metrics.LatencyHistograms = []string{"lvs0/v0"} })
	b.fill(t)
	b.readAnew()
	scrape := func() got { // uses a new reader, which does not know when methods were last called
		b.readAnew()
		return b.scrapeTarget()
	}
	problems := func() (reasons []any) {
		for _, l := range b.log.Lines(t, "latency histogram cannot be read") {
			assert.Equal(t, "lvs0/v0", l["bdev"])
			assert.NotEmpty(t, l["action"])
			reasons = append(reasons, l["reason"])
		}
		return reasons
	}
	for i := range 3 {
		g := b.scrapeTarget() // uses the reader created from the configuration
		if i > 0 {
			g = scrape()
		}
		require.Equal(t, http.StatusOK, g.StatusCode)
		assert.Contains(t, g.body, "\nspdk_io_duration_up{bdev=\"lvs0/v0\"} 0\n")
		assert.Contains(t, g.body, "\nspdk_lvstore_volumes{lvstore=\"lvs0\"} 1\n", "the other figures are there")
	}
	assert.Equal(t, []any{"not enabled"}, problems())
	for _, made := range b.reached() {
		assert.NotEqual(t, "bdev_enable_histogram", made, "the proxy changes nothing")
	}

	b.post(`{"id":1,"method":"bdev_enable_histogram","params":{"name":"lvs0/v0","enable":true}}`)
	scrape()
	assert.Equal(t, []any{"not enabled", "leaves out I/O"}, problems())

	b.post(enableWhole)
	b.post(`{"id":1,"method":"nvmf_subsystem_add_ns","params":{"nqn":"nqn.2026-11.example:a","namespace":{"bdev_name":"lvs0/v0"}}}`)
	assert.Contains(t, scrape().body, "\nspdk_io_duration_up{bdev=\"lvs0/v0\"} 1\n")
	assert.Len(t, b.log.Lines(t, "latency histogram is read again"), 1)
	require.True(t, b.target.DoLatencies("lvs0/v0", spdkrpc.BdevIOTypeWrite, 20*time.Microsecond, 3*time.Millisecond))
	body := scrape().body
	for _, line := range []string{`_bucket{lvstore="lvs0",lvol="v0",le="1e-05"} 0`, `_bucket{lvstore="lvs0",lvol="v0",le="2.5e-05"} 1`, `_bucket{lvstore="lvs0",lvol="v0",le="+Inf"} 2`, `_count{lvstore="lvs0",lvol="v0"} 2`} {
		assert.Contains(t, body, "\nspdk_lvol_io_duration_seconds"+line+"\n")
	}

	b.target.Inject(spdktest.Fault{Method: "bdev_get_histogram", Do: spdktest.Fail})
	scrape()
	assert.Equal(t, []any{"not enabled", "leaves out I/O", "not enabled"}, problems())
	b.post(`{"id":1,"method":"bdev_lvol_delete","params":{"name":"lvs0/v0"}}`)
	scrape()
	assert.Equal(t, "no such bdev", problems()[len(problems())-1])
}
