package proxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If a proxy is restarted under load while its socket stays open, as with systemd, package spdkrpc
// loses no calls, and no call is executed twice. With each new process, calls continue over streams
// or by POST.
func TestRestartsDoNotLoseCalls(t *testing.T) {
	for _, noStream := range []bool{false, true} {
		t.Run(map[bool]string{false: "streams", true: "POST"}[noStream], func(t *testing.T) { restartUnderLoad(t, noStream) })
	}
}

func restartUnderLoad(t *testing.T, noStream bool) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Drain = config.Duration(long) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	file, err := listener.(*net.TCPListener).File()
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	defer func() { _ = file.Close() }()

	caller, err := spdkrpc.NewHTTPS(spdkrpc.HTTPSConfig{URL: "http://" + listener.Addr().String(), Username: "admin", Password: adminPassword, NoStream: noStream})
	require.NoError(t, err)
	var made atomic.Int64
	var calls sync.WaitGroup
	stop := make(chan struct{})
	load := func(worker int) {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			made.Add(1)
			name := fmt.Sprintf("m%d.%d", worker, i)
			if err := caller.Call(t.Context(), "bdev_malloc_create", map[string]any{"name": name, "num_blocks": 64, "block_size": 512}, nil); !assert.NoError(t, err) {
				return
			}
		}
	}
	for restart := range 5 {
		proxy, err := NewServer(b.config, Options{})
		require.NoError(t, err)
		l, err := net.FileListener(file)
		require.NoError(t, err)
		ctx, end := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- proxy.Serve(ctx, l) }()
		if restart == 0 {
			for worker := range 8 {
				calls.Go(func() { load(worker) })
			}
		}
		// Wait until calls have continued for some time, over a stream if permitted.
		if !noStream {
			require.Eventually(t, func() bool { return proxy.streams.Count() > 0 }, long, time.Millisecond)
		}
		before := made.Load()
		require.Eventually(t, func() bool { return made.Load() > before+100 }, long, time.Millisecond)
		if restart == 4 {
			close(stop)
			calls.Wait()
			require.NoError(t, caller.Close())
		}
		end()
		require.NoError(t, <-served)
	}
	assert.EqualValues(t, made.Load(), len(b.reached()))
}
