package spdkrpc

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A drainingProxy ends each of its streams after some messages, as spdk-proxy does when it is
// restarted. It counts how often each call is executed.
type drainingProxy struct {
	mu       sync.Mutex
	executed map[string]int
	streamed int
	drained  int // number of streams whose end was announced
}

func (p *drainingProxy) posted(c call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.executed[string(c.Params)]++
}

// serve executes some messages, announces the end, executes a few more messages, and refuses the
// rest. The client closes the stream.
func (p *drainingProxy) serve(ws *websocket.Conn, _ *http.Request) {
	const before, after = 60, 20
	var writes sync.Mutex
	var running sync.WaitGroup
	defer running.Wait()
	for n := 0; ; n++ {
		c, err := readCall(ws)
		if err != nil {
			return
		}
		running.Go(func() {
			writes.Lock()
			defer writes.Unlock()
			if n >= before+after {
				_ = refuse(ws, c, -32053)
				return
			}
			p.posted(c)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.streamed++
			if n == before {
				p.drained++
				_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","method":"spdkgate.draining"}`))
			}
			_ = sendResponse(ws, c, "true")
		})
	}
}

// If a proxy is restarted repeatedly, no call is lost or executed twice.
func TestNoCallIsLostDuringDrains(t *testing.T) {
	p := &drainingProxy{executed: map[string]int{}}
	posts, h := behind(t, p.serve)
	posts.posted = p.posted
	restarts := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.drained
	}
	var calls sync.WaitGroup
	var made atomic.Int64
	for worker := range 16 {
		calls.Go(func() {
			for i := 0; restarts() < 20; i++ {
				made.Add(1)
				if !assert.NoError(t, h.Call(t.Context(), "m", fmt.Sprint(worker, " ", i), nil)) {
					return
				}
			}
		})
	}
	calls.Wait()
	require.NoError(t, h.Close())
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.Len(t, p.executed, int(made.Load()))
	for params, times := range p.executed {
		assert.Equal(t, 1, times, params)
	}
	t.Logf("%d calls, %d of them on %d streams", made.Load(), p.streamed, posts.asked.Load())
}

// After a stream has ended normally, the client opens the next one immediately. The outcome of a
// call that was already sent is unknown, because the proxy may have read the call.
func TestStreamEndsNormally(t *testing.T) {
	for _, code := range []int{websocket.CloseNormalClosure, websocket.CloseGoingAway} {
		p, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
			c, _ := readCall(ws)
			assert.NoError(t, sendResponse(ws, c, "true"))
			_, _ = readCall(ws)
			closeWith(ws, code)
		})
		ended := connect(t, h)
		require.NoError(t, h.Call(t.Context(), "m", nil, nil))
		require.ErrorIs(t, h.Call(t.Context(), "m", nil, nil), OutcomeUnknown)
		<-ended
		assert.Zero(t, h.streams.next)
		p.stream = echo
		for callFor(t, h, "m") == "m by POST" {
		}
		assert.EqualValues(t, 2, p.asked.Load())
	}
}

// The client itself closes a stream without calls, so that it never sends a call just as the proxy
// closes the idle stream.
func TestUnusedStreamEnds(t *testing.T) {
	closed := make(chan error, 2)
	p, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
		c, _ := readCall(ws)
		assert.NoError(t, sendResponse(ws, c, `"by stream"`))
		_, _, err := ws.ReadMessage()
		closed <- err
	})
	ended := connect(t, h)
	s := h.streams.current.Load()
	for range leaveAfter - 1 {
		s.tick()
	}
	assert.Equal(t, "by stream", callFor(t, h, "m"))
	for range leaveAfter - 1 {
		s.tick()
	}
	select {
	case <-s.ended:
		require.Fail(t, "it was used")
	default:
	}
	s.tick()
	<-ended
	assert.True(t, websocket.IsCloseError(<-closed, websocket.CloseNormalClosure))
	p.stream = echo
	for callFor(t, h, "m") == "m by POST" {
	}
	assert.EqualValues(t, 2, p.asked.Load())
}

// During a long call, the client responds to the server's pings, and the server responds to the
// client's.
func TestStreamPingsBothWays(t *testing.T) {
	pinged, ponged := make(chan struct{}), make(chan struct{})
	_, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
		answer := ws.PingHandler()
		ws.SetPingHandler(func(data string) error { close(pinged); return answer(data) })
		ws.SetPongHandler(func(data string) error {
			assert.Equal(t, "are you there", data)
			close(ponged)
			return nil
		})
		c, _ := readCall(ws)
		assert.NoError(t, ws.WriteControl(websocket.PingMessage, []byte("are you there"), time.Time{}))
		go func() { <-pinged; <-ponged; assert.NoError(t, sendResponse(ws, c, "true")) }()
		_, _ = readCall(ws)
	})
	connect(t, h)
	s := h.streams.current.Load()
	s.update(func(*inFlight) { s.timer.Stop(); s.timer = nil }) // the test itself calls tick
	answer := make(chan error)
	go func() { answer <- h.Call(t.Context(), "m", nil, nil) }()
	<-ponged
	for range pingAfter + 1 { // the first tick notices received data
		s.tick()
	}
	require.NoError(t, <-answer)
}

// A server that pings without reading cannot fill the client's memory.
func TestStreamLimitsResponsesToPings(t *testing.T) {
	g := &gathering{gathers: true}
	w := &webSocket{conn: g}
	for range maxControl {
		if !w.mayAnswer() {
			break
		}
		_, err := g.Write(make([]byte, 8))
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, g.waiting(), maxControl+8)
	require.True(t, g.seal())
	_, err := g.Write([]byte("x"))
	require.Error(t, err)
	_, err = g.flush()
	require.Error(t, err)
}

// A call that a stopping proxy has refused is retried once, on a new connection, both by POST and
// on a stream.
func TestCallRefusedByAStoppingProxyIsRetried(t *testing.T) {
	var stopped string // the client's address on its connection to the stopping process
	h := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		var c call
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		if stopped == "" {
			stopped = r.RemoteAddr
		}
		if c.Method == "m" && r.RemoteAddr == stopped || c.Method == "always" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"id":%d,"error":{"code":-32053,"message":"the proxy is stopping"}}`, c.ID)
			return
		}
		fmt.Fprintf(w, `{"id":%d,"result":"by another process"}`, c.ID)
	})
	assert.Equal(t, "by another process", callFor(t, h, "first"))
	assert.Equal(t, "by another process", callFor(t, h, "m"))
	err := h.Call(t.Context(), "always", nil, nil)
	require.ErrorIs(t, err, Unreachable)
	require.NotErrorIs(t, err, OutcomeUnknown)
}

// After a proxy has announced on the stream that it is stopping, POST requests use new connections.
func TestDrainedStreamRenewsConnections(t *testing.T) {
	var mu sync.Mutex
	posters := map[string]bool{}
	p := &streamProxy{t: t, stream: func(ws *websocket.Conn, _ *http.Request) {
		assert.NoError(t, ws.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","method":"spdkgate.draining"}`)))
		_, _, err := ws.ReadMessage()
		assert.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), err)
	}}
	h := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			mu.Lock()
			posters[r.RemoteAddr] = true
			mu.Unlock()
		}
		p.ServeHTTP(w, r)
	})
	h.streams.next = time.Now().Add(time.Hour) // prevents the client from opening another stream
	callFor(t, h, "m")
	callFor(t, h, "m")
	assert.Len(t, posters, 1)
	<-connect(t, h)
	callFor(t, h, "m")
	assert.Len(t, posters, 2)
}
