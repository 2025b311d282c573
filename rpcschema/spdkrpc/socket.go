package spdkrpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Socket is a Caller that uses the target's UNIX socket. It sends many concurrent calls over one
// connection, and matches responses to calls by id. A response that arrives after the caller has
// stopped waiting is discarded. The Socket connects on first use, and again after the connection is
// lost. Close closes the connection.
type Socket struct {
	path   string
	check  func(net.Conn) error
	limits atomic.Pointer[jsonrpc.Limits]
	nextID atomic.Uint64
	wait   time.Duration // for calls whose context has no deadline
	once   bool          // do not connect again after the connection has ended

	mu      sync.Mutex // not held while the Socket connects
	stream  *stream
	dialing *dialing // nil if no attempt to connect is in progress
	closed  bool
}

// A SocketOption configures a Socket.
type SocketOption func(*Socket)

// WithPeerCheck calls check for each connection before anything is sent on it. If check returns an
// error, the connection is not used.
func WithPeerCheck(check func(net.Conn) error) SocketOption {
	return func(s *Socket) { s.check = check }
}

// WithTimeout limits the duration of a Call whose context has no deadline. The default is one
// minute; 0 means no limit. A call that times out may still be executed, so its error is of the
// kind [OutcomeUnknown].
func WithTimeout(d time.Duration) SocketOption {
	return func(s *Socket) { s.wait = d }
}

// WithOneConnection makes the socket's calls fail with [Unreachable] once its connection has
// closed. By default, the socket connects again with the next call, possibly to another process.
func WithOneConnection() SocketOption {
	return func(s *Socket) { s.once = true }
}

// NewSocket returns a Caller on the UNIX socket at path. It does not connect yet.
func NewSocket(path string, options ...SocketOption) *Socket {
	s := &Socket{path: path, wait: defaultTimeout}
	for _, option := range options {
		option(s)
	}
	s.SetLimits(jsonrpc.LimitsBeforeV2605)
	return s
}

// SetLimits sets the target's limits on a request. A request that exceeds them is not sent, because
// the target would close the connection, which would end every other call on it. Without SetLimits,
// the limits of older releases apply.
func (s *Socket) SetLimits(lim jsonrpc.Limits) { s.limits.Store(&lim) }

// defaultTimeout limits the duration of a call whose context has no deadline.
const defaultTimeout = time.Minute

// Call makes one call. If ctx has no deadline, the socket's timeout applies.
func (s *Socket) Call(ctx context.Context, method string, params, result any) error {
	if _, bounded := ctx.Deadline(); !bounded && s.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.wait)
		defer cancel()
	}
	p, err := s.Start(ctx, method, params)
	if err != nil {
		return err
	}
	err = p.Wait(ctx, result)
	if !p.unsent() || s.once || ctx.Err() != nil {
		return err
	}
	// The connection ended while the call was waiting to be written.
	if p, err = s.Start(ctx, method, params); err != nil {
		return err
	}
	return p.Wait(ctx, result)
}

// A Pending is a call that has been started.
type Pending struct {
	method string
	stream *stream
	call   *streamCall
}

// Start starts one call. Calls reach the target in the order of their Start calls. If Start returns
// an error, the call was not executed. If ctx has ended, Start returns an error without sending the
// call. If the target has closed the connection, Start sends the call on a new one.
func (s *Socket) Start(ctx context.Context, method string, params any) (Pending, error) {
	return s.StartObserved(ctx, method, params, nil)
}

// StartObserved is like Start, but calls the function answered when the response has arrived,
// before Wait returns it. answered may be nil, and must not block.
func (s *Socket) StartObserved(ctx context.Context, method string, params any, answered func()) (Pending, error) {
	id := s.nextID.Add(1)
	text, err := s.encode(id, method, params)
	if err != nil {
		return Pending{}, err
	}
	p := Pending{method: method, call: newCall(id, text)}
	p.call.answered = answered
	connected, err := s.send(ctx, &p)
	if connected && err != nil && !s.once && ctx.Err() == nil {
		p.call = newCall(id, text)
		p.call.answered = answered
		_, err = s.send(ctx, &p)
	}
	if err != nil {
		return Pending{}, &Error{Method: method, Kind: Unreachable, Err: err}
	}
	return p, nil
}

// send sends one call, and reports whether there was a connection for the call. If it returns an
// error, the call was not executed.
func (s *Socket) send(ctx context.Context, p *Pending) (connected bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p.stream, err = s.connect(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return false, err
	}
	if err := p.stream.start(p.call); err != nil {
		return true, err
	}
	if p.unsent() {
		return true, p.call.err
	}
	return true, nil
}

// unsent reports whether the call has failed and was certainly not executed.
func (p Pending) unsent() bool {
	select {
	case <-p.call.done:
		return p.call.err != nil && !p.call.sent
	default:
		return false
	}
}

// Wait waits for the response. If ctx ends first, the outcome is unknown, and Wait may be called
// again. If the call has not been sent by then, it will never be sent, and the error is of the kind
// [Unreachable].
func (p Pending) Wait(ctx context.Context, result any) error {
	select {
	case <-p.call.done:
		return p.outcome(result)
	case <-ctx.Done():
	}
	p.stream.giveUp(p.call, ctx.Err())
	if p.unsent() {
		return p.outcome(result)
	}
	return &Error{Method: p.method, Kind: OutcomeUnknown, Err: ctx.Err()}
}

// outcome returns the outcome of a call that has ended.
func (p Pending) outcome(result any) error {
	switch c := p.call; {
	case c.err == nil:
		return decodeResponse(p.method, c.response, result)
	case c.sent:
		return &Error{Method: p.method, Kind: OutcomeUnknown, Err: c.err}
	default:
		return &Error{Method: p.method, Kind: Unreachable, Err: c.err}
	}
}

// encode writes a request and checks it against the target's limits.
func (s *Socket) encode(id uint64, method string, params any) ([]byte, error) {
	text, err := requestText(id, method, params)
	if err != nil {
		return nil, &Error{Method: method, Kind: InvalidParams, Err: err}
	}
	lim := *s.limits.Load()
	if len(text) <= lim.Values && len(text) <= lim.Bytes {
		return text, nil // each value is at least one byte long
	}
	if _, err := jsonrpc.DecodeValue(text, lim); err != nil {
		return nil, &Error{Method: method, Kind: InvalidParams, Code: jsonrpc.CodeTooLarge, Message: "the request does not fit the target", Err: err}
	}
	return text, nil
}

// Connected reports whether the socket is connected, and returns a channel that is closed when the
// connection ends.
func (s *Socket) Connected() (<-chan struct{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.living() {
		return nil, false
	}
	return s.stream.ended, true
}

// Close closes the connection. Calls in flight end with OutcomeUnknown.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.dialing != nil {
		s.dialing.cancel()
	}
	if s.stream != nil {
		s.stream.end(net.ErrClosed)
	}
	return nil
}
