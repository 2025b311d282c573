package spdkrpc

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

const (
	// streamHeader is the header that offers streams to authenticated users. Its value is a path.
	streamHeader = "Spdkgate-Stream"
	subprotocol  = "jsonrpc"

	// streamCalls is the maximum number of calls in flight on a stream. At 256, the proxy would
	// stop reading and would not respond to pings.
	streamCalls = 255
	// streamRequest is the maximum length in bytes of a request sent on a stream. If a request on a
	// stream is too long, the proxy closes the stream, which ends all calls on it. If a POST
	// request is too long, only that request fails.
	streamRequest = 32 << 10
	// streamBeat is the time between two ticks. As a result, the client sends a ping after 15 s of
	// silence, waits 15 s for the pong, and ends a stream after a minute without calls. The proxy
	// closes an idle stream after limits.idle, by default two minutes.
	streamBeat = 5 * time.Second
	// streamWait is how long to wait for a stream to open.
	streamWait = 30 * time.Second

	// The next attempt waits for lostPause after a connection was lost or could not be established,
	// and for refusedPause after an upgrade was refused. maxPause limits both.
	lostPause    = time.Second
	refusedPause = 10 * time.Second
	maxPause     = time.Minute
)

// A streamSource opens the stream of an HTTPS, and opens a new one when that stream has ended.
// Callers do not wait for a stream. Until one is open, calls are POST requests.
type streamSource struct {
	dial func(ctx context.Context, path string) (*stream, error)
	// draining is called when the proxy is stopping, before calls are sent by POST.
	draining func()
	current  atomic.Pointer[stream] // nil if no stream is open

	mu      sync.Mutex
	offered string // path of the stream; "" if the proxy does not offer streams
	opening bool
	pause   time.Duration // pause before the last attempt
	next    time.Time     // earliest time of the next attempt
	closed  bool
}

// learn records whether the proxy offers streams.
func (s *streamSource) learn(resp *http.Response) {
	path := resp.Header.Get(streamHeader)
	if !strings.HasPrefix(path, "/") {
		// The response may come from an intermediary, or belong to an unauthenticated request.
		if resp.StatusCode != http.StatusOK {
			return
		}
		path = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered = path
}

// call makes a call on the stream. If done is false, the call was certainly not executed, and can
// be made by a POST request.
func (s *streamSource) call(ctx context.Context, method string, id uint64, body []byte, result any) (done bool, err error) {
	if len(body) > streamRequest {
		return false, nil
	}
	current := s.current.Load()
	if current == nil {
		s.open()
		return false, nil
	}
	if ctx.Err() != nil {
		return false, nil
	}
	p := Pending{method: method, stream: current, call: newCall(id, body)}
	if err := current.start(p.call); err != nil {
		if !errors.Is(err, errFull) {
			s.retire(current)
		}
		return false, nil
	}
	err = p.Wait(ctx, result)
	switch {
	case p.unsent() && ctx.Err() == nil: // the connection has ended
		s.retire(current)
		return false, nil
	case refused(err):
		// The stream's credentials have expired, or the proxy is stopping. A POST request uses the
		// current credentials and a new connection.
		s.retire(current)
		return false, nil
	}
	return true, err
}

// refused reports whether a call was refused for a reason that might not apply to a POST request.
func refused(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Code == jsonrpc.CodeUnauthorized || e.Code == jsonrpc.CodeDraining)
}

// retire lets a stream end after its last call, and starts opening another one.
func (s *streamSource) retire(old *stream) {
	old.leave()
	s.drop(old)
	s.open()
}

// drop stops using a stream that accepts no further calls.
func (s *streamSource) drop(old *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() != old {
		return
	}
	if old.isDraining() {
		s.draining()
	}
	s.current.Store(nil)
}

// open starts to open a stream if the proxy offers one and the pause has ended.
func (s *streamSource) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offered == "" || s.opening || s.closed || s.current.Load() != nil || time.Now().Before(s.next) {
		return
	}
	s.opening = true
	go s.run(s.offered)
}

// run opens a stream and waits until it ends.
func (s *streamSource) run(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), streamWait)
	defer cancel()
	opened, err := s.dial(ctx, path)
	if s.opened(opened, err) {
		s.serve(opened)
	}
}

// serve reads a stream until it ends.
func (s *streamSource) serve(opened *stream) {
	opened.run()
	s.drop(opened)
	s.ended(opened.outcome())
}

// opened records the outcome of an attempt.
func (s *streamSource) opened(opened *stream, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening = false
	if err != nil {
		s.wait(err)
		return false
	}
	if s.closed {
		opened.leave()
	}
	s.current.Store(opened)
	return true
}

// ended records why a stream has ended. After a normal end, or one initiated by this client, the
// next call may open another stream immediately.
func (s *streamSource) ended(err error, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answered {
		s.pause = 0
	}
	normal := errors.Is(err, errLeaving) || websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway)
	if normal && answered {
		s.next = time.Time{}
		return
	}
	s.wait(err)
}

// wait lengthens the pause before the next attempt. The caller must hold the lock.
func (s *streamSource) wait(err error) {
	least := lostPause
	var refusal *refusedUpgrade
	if errors.As(err, &refusal) && refusal.status != http.StatusServiceUnavailable {
		least = refusedPause
	}
	s.pause = min(max(2*s.pause, least), maxPause)
	// Randomize the time, so that the clients of one proxy do not all reconnect at once.
	s.next = time.Now().Add(s.pause/2 + rand.N(s.pause/2))
}

func (s *streamSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if current := s.current.Swap(nil); current != nil {
		current.leave()
	}
}

// A refusedUpgrade is the error for a stream that the proxy refused to open.
type refusedUpgrade struct{ status int }

func (e *refusedUpgrade) Error() string {
	return "the proxy refused the stream: HTTP " + http.StatusText(e.status)
}

// dialStream opens a stream with the current credentials.
func (h *HTTPS) dialStream(ctx context.Context, path string) (*stream, error) {
	header, err := h.who.header()
	if err != nil {
		return nil, err
	}
	header = header.Clone()
	header.Del("Content-Type")
	address := *h.url
	address.Scheme = map[string]string{"https": "wss", "http": "ws"}[h.url.Scheme]
	address.Path, address.RawPath, address.RawQuery, address.Fragment = path, "", "", ""
	var conn *gathering
	through := func(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			conn = &gathering{Conn: c}
			return conn, nil
		}
	}
	dialer := websocket.Dialer{
		NetDialContext:    through(new(net.Dialer).DialContext),
		NetDialTLSContext: through((&tls.Dialer{Config: h.transport.Load().TLSClientConfig}).DialContext),
		HandshakeTimeout:  streamWait, Subprotocols: []string{subprotocol},
		ReadBufferSize: 32 << 10, WriteBufferSize: 4 << 10,
	}
	ws, resp, err := dialer.DialContext(ctx, address.String(), header)
	switch {
	case errors.Is(err, websocket.ErrBadHandshake):
		return nil, &refusedUpgrade{resp.StatusCode}
	case err != nil:
		return nil, err
	case ws.Subprotocol() != subprotocol:
		_ = ws.Close()
		return nil, errors.New("the server does not speak JSON-RPC on its stream")
	}
	conn.gather()
	framing := newWebSocket(ws, conn)
	s := newStream(framing, streamCalls, streamBeat)
	framing.wake = s.flush
	return s, nil
}
