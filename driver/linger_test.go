package driver

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spdkgate/spdkgate/driver/drivertest"
)

// TestSidecarsFinishBeforeTheDriver stops a sidecar and the driver at the same time. The sidecar
// makes its remaining calls and then disconnects. The driver must serve the sidecar until then.
func TestSidecarsFinishBeforeTheDriver(t *testing.T) {
	for name, linger := range map[string]time.Duration{"lingers": time.Hour, "does not": 0} {
		t.Run(name, func(t *testing.T) {
			socket := "unix://" + filepath.Join(t.TempDir(), "csi.sock")
			l, err := Listen(socket)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			logs := &drivertest.Log{}
			server := Server{Identity: &Identity{Name: "x"}, Log: logs.Logger(), Linger: linger, Drain: 2 * time.Hour}
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(ctx, l) }()
			conn, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
			require.NoError(t, err)
			defer conn.Close()
			sidecar := csi.NewIdentityClient(conn)
			_, err = sidecar.Probe(t.Context(), &csi.ProbeRequest{})
			require.NoError(t, err)
			stop()
			if linger == 0 {
				require.NoError(t, <-ended)
			}
			for range 3 {
				_, err = sidecar.Probe(t.Context(), &csi.ProbeRequest{})
				if linger == 0 {
					require.Equal(t, codes.Unavailable, status.Code(err))
				} else {
					require.NoError(t, err)
				}
			}
			if linger > 0 {
				require.NoError(t, conn.Close())
				require.NoError(t, <-ended)
			}
		})
	}
}

// Sidecars that are not the leader remain connected but make no calls.
func TestServerWaitsForSidecarsToFinish(t *testing.T) {
	const quiet, most = 2 * time.Second, 10 * time.Second
	for name, c := range map[string]struct {
		events func(c *clients)
		want   time.Duration
	}{
		"nobody connected": {func(*clients) {}, 0},
		"no calls":         {func(c *clients) { c.change(1, 0) }, quiet},
		"a call, then none": {func(c *clients) {
			c.change(1, 1)
			go func() { time.Sleep(3 * time.Second); c.change(0, -1) }()
		}, 3*time.Second + quiet},
		"one call after the other": {func(c *clients) {
			c.change(1, 0)
			go func() {
				for range 20 {
					time.Sleep(time.Second)
					c.change(0, 1)
					c.change(0, -1)
				}
			}()
		}, most},
		"a call that hangs": {func(c *clients) { c.change(1, 1) }, most},
		"disconnects":       {func(c *clients) { c.change(1, 1); go func() { time.Sleep(time.Second); c.change(-1, -1) }() }, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var counted clients
				c.events(&counted)
				begin := time.Now()
				counted.linger(quiet, most)
				assert.Equal(t, c.want, time.Since(begin), "on a clock that only waiting moves")
				time.Sleep(time.Minute) // there are no more events
			})
		})
	}
}
