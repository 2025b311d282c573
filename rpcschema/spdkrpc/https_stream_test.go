package spdkrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A streamProxy responds to POST requests with the name of their method, and offers streams.
type streamProxy struct {
	t testing.TB
	// status of responses to upgrades; 0 means that they succeed
	refuse atomic.Int32
	stream func(ws *websocket.Conn, r *http.Request) // serves a stream
	posted func(call)                                // called for each POST request; may be nil
	posts  atomic.Int32
	asked  atomic.Int32 // number of upgrades
}

func (p *streamProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/stream" {
		p.asked.Add(1)
		if status := p.refuse.Load(); status != 0 {
			w.WriteHeader(int(status))
			return
		}
		upgrader := websocket.Upgrader{Subprotocols: []string{subprotocol}}
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // the client has disconnected
		}
		defer func() { _ = ws.Close() }()
		p.stream(ws, r)
		return
	}
	p.posts.Add(1)
	var c call
	assert.NoError(p.t, json.NewDecoder(r.Body).Decode(&c))
	if p.posted != nil {
		p.posted(c)
	}
	w.Header().Set(streamHeader, "/stream")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":%q}`, c.ID, c.Method+" by POST")
}

// behind returns a client of a proxy that serves streams with the given function.
func behind(t testing.TB, serve func(ws *websocket.Conn, r *http.Request)) (*streamProxy, *HTTPS) {
	p := &streamProxy{t: t, stream: serve}
	h := proxied(t, p.ServeHTTP)
	h.streams.offered = "/stream"
	return p, h
}

// connect opens a stream, and closes the channel when the stream has ended.
func connect(t testing.TB, h *HTTPS) (ended chan struct{}) {
	s, err := h.streams.dial(t.Context(), "/stream")
	require.NoError(t, err)
	require.True(t, h.streams.opened(s, nil))
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		h.streams.serve(s)
	}()
	return ended
}

func readCall(ws *websocket.Conn) (c call, err error) { return c, ws.ReadJSON(&c) }

func sendResponse(ws *websocket.Conn, c call, result string) error {
	return ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, c.ID, result))
}

func refuse(ws *websocket.Conn, c call, code int) error {
	return ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"no"}}`, c.ID, code))
}

func closeWith(ws *websocket.Conn, code int) {
	_ = ws.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(code, "why"))
	_, _, _ = ws.ReadMessage() // the client's close frame, or the end
}

// echo responds to each call with the name of its method.
func echo(ws *websocket.Conn, _ *http.Request) {
	for {
		c, err := readCall(ws)
		if err != nil || sendResponse(ws, c, fmt.Sprintf("%q", c.Method+" by stream")) != nil {
			return
		}
	}
}

func callFor(t testing.TB, h *HTTPS, method string) (result string) {
	require.NoError(t, h.Call(t.Context(), method, nil, &result))
	return result
}

// The first calls are POST requests. Later calls use the stream, which is opened with the same
// credentials as a POST request.
func TestStreamIsOpenedWhenOffered(t *testing.T) {
	p := &streamProxy{t: t, stream: func(ws *websocket.Conn, r *http.Request) {
		user, password, _ := r.BasicAuth()
		assert.Equal(t, "u p GET", user+" "+password+" "+r.Method)
		assert.Empty(t, r.Header.Get("Sec-WebSocket-Extensions"))
		echo(ws, r)
	}}
	h := proxied(t, p.ServeHTTP)
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
	assert.Zero(t, p.asked.Load(), "a program that makes one call needs no stream")
	for callFor(t, h, "m") == "m by POST" {
	}
	posts := p.posts.Load()
	var calls sync.WaitGroup
	for range 200 {
		calls.Go(func() { assert.Equal(t, "m by stream", callFor(t, h, "m")) })
	}
	calls.Wait()
	assert.Equal(t, posts, p.posts.Load())
	assert.EqualValues(t, 1, p.asked.Load())
}

func TestStreamAcceptsResponsesInAnyOrder(t *testing.T) {
	const n = 50
	_, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
		var calls []call
		for range n {
			c, err := readCall(ws)
			assert.NoError(t, err)
			calls = append([]call{c}, calls...)
		}
		for _, c := range calls {
			assert.NoError(t, sendResponse(ws, c, string(c.Params)))
		}
		_, _ = readCall(ws)
	})
	connect(t, h)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var got map[string]int
			assert.NoError(t, h.Call(t.Context(), "echo", map[string]int{"i": i}, &got))
			assert.Equal(t, i, got["i"])
		})
	}
	wg.Wait()
}

// If one caller's deadline passes, the other callers continue to wait.
func TestStreamDeadlineAffectsOnlyItsCall(t *testing.T) {
	left := make(chan struct{})
	_, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
		slow, _ := readCall(ws)
		other, _ := readCall(ws)
		<-left
		assert.NoError(t, sendResponse(ws, slow, `"late"`))
		assert.NoError(t, sendResponse(ws, other, `"in time"`))
		_, _ = readCall(ws)
	})
	connect(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	slow := make(chan error, 1)
	go func() { slow <- h.Call(ctx, "slow", nil, nil) }()
	other := make(chan string, 1)
	go func() {
		for h.streams.current.Load().callsInFlight() == 0 { // the slow call must be sent first
		}
		other <- callFor(t, h, "other")
	}()
	for h.streams.current.Load().callsInFlight() < 2 {
	}
	cancel()
	err := <-slow
	require.ErrorIs(t, err, OutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	close(left)
	assert.Equal(t, "in time", <-other)
}

func (s *stream) callsInFlight() (n int) {
	s.update(func(f *inFlight) { n = len(f.calls) })
	return n
}

// When a connection is lost, the outcome of its calls is unknown. Later calls are POST requests.
func TestLostStreamLeavesTheOutcomeUnknown(t *testing.T) {
	for name, lose := range map[string]func(ws *websocket.Conn){
		"connection closed": func(ws *websocket.Conn) { _ = ws.NetConn().Close() },
		"1011":              func(ws *websocket.Conn) { closeWith(ws, websocket.CloseInternalServerErr) },
		"binary": func(ws *websocket.Conn) {
			_ = ws.WriteMessage(websocket.BinaryMessage, []byte(`{"id":1,"result":true}`))
		},
		"no JSON":     func(ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(`{"id":1,"result":tru`)) },
		"two values":  func(ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(`{"id":9,"result":1}{}`)) },
		"no response": func(ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(`{"id":9}`)) },
		"a batch":     func(ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(`[{"id":9,"result":1}]`)) },
		"no frame":    func(ws *websocket.Conn) { _, _ = ws.NetConn().Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
		"compressed":  func(ws *websocket.Conn) { _, _ = ws.NetConn().Write([]byte{0xc1, 2, '{', '}'}) },
		"too long":    func(ws *websocket.Conn) { _, _ = ws.NetConn().Write([]byte{0x81, 127, 0, 0, 0, 0, 0x10, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			p, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
				_, err := readCall(ws)
				assert.NoError(t, err)
				lose(ws)
				_, _, _ = ws.ReadMessage()
			})
			ended := connect(t, h)
			require.ErrorIs(t, h.Call(t.Context(), "m", nil, nil), OutcomeUnknown)
			<-ended
			assert.Equal(t, "m by POST", callFor(t, h, "m"))
			assert.EqualValues(t, 1, p.asked.Load(), "the next attempt comes after a pause")
		})
	}
}

// If the stream has been closed before a call, the call becomes a POST request.
func TestCallAfterALostStreamUsesPOST(t *testing.T) {
	_, h := behind(t, func(*websocket.Conn, *http.Request) {})
	ended := connect(t, h)
	s := h.streams.current.Load()
	<-ended
	h.streams.current.Store(s) // as if the call had been made before the stream ended
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
	assert.Nil(t, h.streams.current.Load())
}

func TestUnwrittenCallUsesPOST(t *testing.T) {
	_, h := behind(t, echo)
	f, s := begin(t, 0)
	h.streams.current.Store(s)
	go f.written(0, io.ErrShortWrite)
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
}

// A server that does not read delays no caller past its deadline.
func TestCallsKeepTheirDeadlineIfServerDoesNotRead(t *testing.T) {
	done := make(chan struct{})
	_, h := behind(t, func(*websocket.Conn, *http.Request) { <-done })
	connect(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	params := map[string]string{"a": strings.Repeat("x", streamRequest-100)}
	var calls sync.WaitGroup
	for range streamCalls {
		calls.Go(func() { failed <- h.Call(ctx, "m", params, nil) })
	}
	s := h.streams.current.Load()
	for s.callsInFlight() < streamCalls {
	}
	assert.Equal(t, "m by POST", callFor(t, h, "m"), "the stream is full")
	cancel()
	s.end(os.ErrDeadlineExceeded) // the deadline of the write
	for range streamCalls {
		assert.NotEmpty(t, KindOf(<-failed))
	}
	calls.Wait()
	close(done)
}

// If the proxy does not offer streams, or the client does not use them, all calls are POST
// requests.
func TestCallsUsePOSTWithoutStreams(t *testing.T) {
	p, h := behind(t, echo)
	h.streams.closed = true // as with NoStream
	for range 5 {
		assert.Equal(t, "m by POST", callFor(t, h, "m"))
	}
	assert.Zero(t, p.asked.Load())

	h = proxied(t, func(w http.ResponseWriter, r *http.Request) {
		var c call
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		assert.Equal(t, "/", r.URL.Path)
		fmt.Fprintf(w, `{"id":%d,"result":true}`, c.ID)
	})
	h.streams.offered = "/stream" // until the first response
	h.streams.next = time.Now().Add(time.Hour)
	for range 5 {
		require.NoError(t, h.Call(t.Context(), "m", nil, nil))
		assert.Empty(t, h.streams.offered)
		h.streams.next = time.Time{}
	}
	c := HTTPSConfig{URL: "https://host/", NoStream: true}
	h, err := NewHTTPS(c)
	require.NoError(t, err)
	assert.True(t, h.streams.closed)
}

// If the server refuses the upgrade to a WebSocket, no call fails. The client makes the next
// attempt after a pause, which grows up to a minute.
func TestRefusedStreamIsRetriedAfterAPause(t *testing.T) {
	for _, status := range []int{401, 404, 429, 503, 200} {
		p, h := behind(t, echo)
		p.refuse.Store(int32(status))
		s, err := h.streams.dial(t.Context(), "/stream")
		require.Error(t, err)
		least := time.Second
		if status != 503 {
			least = 10 * time.Second
		}
		for pause := least; pause < maxPause; pause = min(2*pause, maxPause) {
			before := time.Now()
			require.False(t, h.streams.opened(s, err))
			assert.Equal(t, pause, h.streams.pause)
			assert.True(t, h.streams.next.After(before))
		}
		for range 5 {
			assert.Equal(t, "m by POST", callFor(t, h, "m"))
		}
		assert.EqualValues(t, 1, p.asked.Load())
	}
}

// Long requests are POST requests, because a request that is too long would end the other calls on
// a stream.
func TestLongRequestsAreNotStreamed(t *testing.T) {
	_, h := behind(t, echo)
	connect(t, h)
	var result string
	require.NoError(t, h.Call(t.Context(), "m", map[string]string{"a": strings.Repeat("x", streamRequest)}, &result))
	assert.Equal(t, "m by POST", result)
	assert.Equal(t, "m by stream", callFor(t, h, "m"))
}

// After Close, the stream ends when its last call has ended. Later calls are POST requests.
func TestCloseEndsTheStream(t *testing.T) {
	closed := make(chan struct{})
	_, h := behind(t, func(ws *websocket.Conn, _ *http.Request) {
		c, _ := readCall(ws)
		<-closed
		assert.NoError(t, sendResponse(ws, c, `"answered"`))
		_, _, err := ws.ReadMessage()
		assert.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), err)
	})
	ended := connect(t, h)
	answer := make(chan string)
	go func() { answer <- callFor(t, h, "m") }()
	for s := h.streams.current.Load(); s.callsInFlight() == 0 || s.isWriting(); {
	}
	require.NoError(t, h.Close())
	close(closed)
	assert.Equal(t, "answered", <-answer)
	<-ended
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
}

// If the client is closed while a stream is being opened, that stream ends.
func TestStreamOpenedDuringCloseEnds(t *testing.T) {
	_, h := behind(t, echo)
	s, err := h.streams.dial(t.Context(), "/stream")
	require.NoError(t, err)
	require.NoError(t, h.Close())
	require.True(t, h.streams.opened(s, nil))
	h.streams.serve(s)
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
}

// When a stream's credentials expire, no call fails, and the next stream uses the current content
// of the token file.
func TestExpiredCredentialsFailNoCall(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("first"), 0o600))
	p := &streamProxy{t: t}
	p.stream = func(ws *websocket.Conn, r *http.Request) {
		c, _ := readCall(ws)
		if r.Header.Get("Authorization") != "Bearer first" {
			assert.NoError(t, sendResponse(ws, c, fmt.Sprintf("%q", r.Header.Get("Authorization"))))
			_, _ = readCall(ws)
			return
		}
		assert.NoError(t, os.WriteFile(file, []byte("second"), 0o600))
		assert.NoError(t, refuse(ws, c, -32001))
		closeWith(ws, websocket.ClosePolicyViolation)
	}
	h := proxied(t, p.ServeHTTP)
	h.who = credentials{fixed: http.Header{}, tokenFile: file}
	ended := connect(t, h)
	assert.Equal(t, "m by POST", callFor(t, h, "m"))
	<-ended
	connect(t, h)
	assert.Equal(t, "Bearer second", callFor(t, h, "m"))
	require.NoError(t, os.Remove(file))
	_, err := h.streams.dial(t.Context(), "/stream")
	require.ErrorIs(t, err, os.ErrNotExist)
}
