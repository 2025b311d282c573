package controller

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver"
	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// An expiring is a context whose deadline passes when expire is called.
type expiring struct {
	context.Context
	done   chan struct{}
	expire func()
}

func newExpiring(parent context.Context) *expiring {
	e := &expiring{Context: parent, done: make(chan struct{})}
	e.expire = sync.OnceFunc(func() { close(e.done) })
	return e
}

func (e *expiring) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (e *expiring) Done() <-chan struct{}       { return e.done }

func (e *expiring) Err() error {
	select {
	case <-e.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// During an outage, each call's error has the same text on every retry, so that Kubernetes counts
// one event instead of showing a new event each time.
func TestErrorTextsStayTheSameDuringAnOutage(t *testing.T) {
	var instead atomic.Pointer[http.HandlerFunc]
	s := newSimTarget(t, "t0", "lvs0")
	working := s.gateway.Config.Handler
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := instead.Load(); f != nil {
			(*f)(w, r)
			return
		}
		working.ServeHTTP(w, r)
	}))
	t.Cleanup(gateway.Close)
	s.gateway.Close()
	s.gateway = gateway
	b := newTestController(t, s)
	v := b.create(t, "pvc-1", 4*mib)
	calls := map[string]func(context.Context) error{
		"CreateVolume":              func(ctx context.Context) error { _, err := b.CreateVolume(ctx, b.request("pvc-2", 4*mib)); return err },
		"DeleteVolume":              func(ctx context.Context) error { return b.delete(ctx, v.GetVolumeId()) },
		"ControllerPublishVolume":   func(ctx context.Context) error { _, err := b.publish(ctx, v, nodeA); return err },
		"ControllerUnpublishVolume": func(ctx context.Context) error { return b.unpublish(ctx, v.GetVolumeId(), nodeA) },
	}
	host := strings.TrimPrefix(gateway.URL, "http://")
	check := func(t *testing.T, cause string, newContext func() context.Context) {
		for _, name := range slices.Sorted(maps.Keys(calls)) {
			texts := map[string]int{}
			for range 20 {
				texts[driver.Status(calls[name](newContext())).Error()]++
			}
			assert.Len(t, texts, 1, name)
			for text := range texts {
				assert.Equal(t, "rpc error: code = Unavailable desc = target t0: unreachable: "+cause+" ("+host+"): check that the target's rpcURL is right, and that the proxy and spdk_tgt run there", text, name)
			}
		}
	}
	t.Run("reset", func(t *testing.T) {
		f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			c, _, err := w.(http.Hijacker).Hijack()
			if assert.NoError(t, err) {
				_ = c.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
		})
		instead.Store(&f)
		check(t, "connection closed by the proxy or the network", t.Context)
	})
	t.Run("timeout", func(t *testing.T) {
		var now atomic.Pointer[expiring]
		f := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			now.Load().expire()
			<-r.Context().Done()
		})
		instead.Store(&f)
		check(t, "no response in time", func() context.Context {
			now.Store(newExpiring(t.Context()))
			return now.Load()
		})
	})
	t.Run("refused", func(t *testing.T) {
		gateway.CloseClientConnections()
		gateway.Close()
		for _, c := range b.Controller.targets.clients { // otherwise the first call may use a connection that the gateway just closed
			require.NoError(t, c.https.Close())
		}
		check(t, "connection refused", t.Context)
	})
}

// A response from the target ends an outage, but a refusal of the credentials does not.
func TestAnyResponseEndsAnOutage(t *testing.T) {
	b := newTestController(t, newSimTarget(t, "t0", "lvs0"))
	right := b.secrets
	require.True(t, b.Controller.targets.outages.Failed("t0", "credentials refused", "CreateVolume", "x"))
	b.secrets = map[string]string{config.SecretKey: strings.ReplaceAll(right[config.SecretKey], password, "wrong")}
	_, err := b.CreateVolume(t.Context(), b.request("pvc-1", 4*mib))
	require.ErrorIs(t, err, spdkrpc.ErrCredentials)
	assert.True(t, b.Controller.targets.outages.Ongoing("t0"))
	b.secrets = right
	b.create(t, "pvc-1", 4*mib)
	assert.False(t, b.Controller.targets.outages.Ongoing("t0"))
	assert.Contains(t, b.logs.String(), `msg="storage server reachable again" target=t0 failures=1`)
}
