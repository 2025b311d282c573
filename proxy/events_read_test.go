package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// The read timeout for request bodies does not end an event stream.
func TestEventStreamOutlastsBodyTimeout(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(50 * time.Millisecond) })
	s := serve(t, b)
	f := s.follow("admin", adminPassword, "")
	s.listening(t, 1)
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		require.Equal(t, 1, b.proxy.events.Listeners())
	}
	b.post(createMalloc)
	assert.Equal(t, "m0", f.await("bdev_register").Object)
}
