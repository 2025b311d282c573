package proxy

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunningProxyIsAlive(t *testing.T) {
	b := newBench(t, "v26.05", withTLS(""))
	s := serve(t, b)
	for range 3 {
		require.NoError(t, b.proxy.Alive(t.Context()))
	}
	require.NoError(t, b.target.Close())
	require.NoError(t, b.proxy.Alive(t.Context()), "the proxy is alive without a target")

	s.stop()
	require.NoError(t, <-s.done)
	require.ErrorIs(t, b.proxy.Alive(t.Context()), net.ErrClosed)
}

// While calls are blocked on a lock, Alive returns an error.
func TestHungProxyIsNotAlive(t *testing.T) {
	b := newBench(t, "v26.05")
	release := make(chan struct{})
	handler := b.proxy.handler
	b.proxy.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-release
		handler.ServeHTTP(w, r)
	})
	serve(t, b)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.Error(t, b.proxy.Alive(ctx))
	close(release)
	assert.NoError(t, b.proxy.Alive(t.Context()))
}

func TestProxyIsNotAliveBeforeItServes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, newBench(t, "v26.05").proxy.Alive(ctx), context.Canceled)
}

// If the handler responds with an error, Alive returns an error.
func TestProxyWhoseHandlerFailsIsNotAlive(t *testing.T) {
	b := newBench(t, "v26.05")
	serve(t, b)
	require.NoError(t, b.proxy.Alive(t.Context()))
	b.proxy.handler = b.proxy.web.AnswerPanics(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("bug") }))
	require.ErrorContains(t, b.proxy.Alive(t.Context()), "status 500")
}
