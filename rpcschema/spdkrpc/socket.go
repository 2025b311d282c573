package spdkrpc

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Socket is a Caller on the target's UNIX socket: one connection with many calls in flight, matched
// by id. A reply that arrives after its caller has stopped waiting is dropped. The connection is
// made when it is first needed, and again after it was lost. Close closes it.
type Socket struct {
	path   string
	check  func(net.Conn) error
	limits atomic.Pointer[jsonrpc.Limits]
	nextID atomic.Uint64
	wait   time.Duration // of a call whose context has no deadline
	once   bool          // it does not connect again

	mu      sync.Mutex // not held while connecting
	conn    *jsonrpc2.Conn
	dialing *dialing // nil: no attempt to connect is in progress
	closed  bool
}

// A SocketOption changes how a Socket connects.
type SocketOption func(*Socket)

// WithPeerCheck calls check for each connection before anything is sent on it. If check returns an
// error, the connection is not used.
func WithPeerCheck(check func(net.Conn) error) SocketOption {
	return func(s *Socket) { s.check = check }
}

// WithTimeout limits the duration of a Call whose context has no deadline. Without it, that is one
// minute; with 0 there is no limit. A call that times out may still be executed: its error is of
// the kind [OutcomeUnknown].
func WithTimeout(d time.Duration) SocketOption {
	return func(s *Socket) { s.wait = d }
}

// WithOneConnection makes the socket fail its calls with [Unreachable] after its connection has ended. Otherwise it connects
// again with the next call, perhaps to another process.
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

// SetLimits sets the target's limits for one request. A request that exceeds them is not sent,
// because the target would close the connection, with every other call on it. Without SetLimits,
// the limits of older releases apply.
func (s *Socket) SetLimits(lim jsonrpc.Limits) { s.limits.Store(&lim) }

// defaultTimeout limits the duration of a call whose context has no deadline.
const defaultTimeout = time.Minute

// Call makes one call. Without a deadline in ctx, the socket's timeout bounds it.
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
	return p.Wait(ctx, result)
}

// A Pending is a call that was sent.
type Pending struct {
	method string
	texts  *texts
	waiter jsonrpc2.Waiter
}

// Start sends one call. If Start returns an error, the call was not executed. If ctx has ended,
// Start does not send the call and returns an error. If it cannot send the call because the target
// has closed the connection, it sends the call on a new one.
func (s *Socket) Start(ctx context.Context, method string, params any) (Pending, error) {
	text, err := s.encode(method, params)
	if err != nil {
		return Pending{}, err
	}
	p := Pending{method: method, texts: &texts{params: text}}
	connected, err := s.send(ctx, &p)
	if connected && err != nil && !s.once && ctx.Err() == nil {
		_, err = s.send(ctx, &p)
	}
	if err != nil {
		return Pending{}, &Error{Method: method, Kind: Unreachable, Err: err}
	}
	return p, nil
}

// send sends one call, and tells whether it had a connection for it. If it returns an error, the call was not executed.
func (s *Socket) send(ctx context.Context, p *Pending) (connected bool, err error) {
	// The library does not check ctx before it sends.
	if err := ctx.Err(); err != nil {
		return false, err
	}
	conn, err := s.connect(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return false, err
	}
	// Ids start at 1: the library reads a null id as 0, and SPDK answers requests that it cannot parse
	// with a null id.
	p.waiter, err = conn.DispatchCall(ctx, p.method, nil, jsonrpc2.PickID(jsonrpc2.ID{Num: s.nextID.Add(1)}), carry(p.texts))
	if err != nil {
		// Not written completely: SPDK executes complete values only.
		_ = conn.Close()
	}
	if errors.Is(err, jsonrpc2.ErrClosed) {
		err = net.ErrClosed
	}
	return true, err
}

// Wait waits for the answer. When ctx ends first, the outcome is unknown, and
// Wait may be called again for it.
func (p Pending) Wait(ctx context.Context, result any) error {
	if err := p.waiter.Wait(ctx, nil); err != nil {
		var answer *jsonrpc2.Error
		if errors.As(err, &answer) {
			return answered(p.method, int(answer.Code), answer.Message)
		}
		if errors.Is(err, jsonrpc2.ErrClosed) {
			err = errors.New("the target closed the connection before it answered")
		}
		return &Error{Method: p.method, Kind: OutcomeUnknown, Err: err}
	}
	return decodeResult(p.method, p.texts.result, result)
}

// encode writes the parameters and checks them against the target's limits.
func (s *Socket) encode(method string, params any) (json.RawMessage, error) {
	if params == nil {
		return nil, nil
	}
	// Encoded as the library does, with <, > and & escaped to six bytes each: the measured text must
	// be the sent text.
	text, err := json.Marshal(params)
	if err != nil {
		return nil, &Error{Method: method, Kind: InvalidParams, Err: err}
	}
	lim := *s.limits.Load()
	const envelope, envelopeValues = 128, 10 // id, method and the rest
	lim.Bytes -= envelope + len(method)
	lim.Values -= envelopeValues
	if len(text) <= lim.Values && len(text) <= lim.Bytes {
		return text, nil // no value is shorter than a byte
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
	return s.conn.DisconnectNotify(), true
}

// Close ends the connection; calls in flight end with OutcomeUnknown.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.dialing != nil {
		s.dialing.cancel()
	}
	if s.conn == nil {
		return nil
	}
	if err := s.conn.Close(); err != nil && !errors.Is(err, jsonrpc2.ErrClosed) {
		return err
	}
	return nil
}

// decodeResult decodes a result. If that fails, the call was executed nevertheless.
func decodeResult(method string, raw json.RawMessage, result any) error {
	switch result := result.(type) {
	case nil:
		return nil
	case *json.RawMessage:
		*result = raw
		return nil
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return &Error{Method: method, Kind: Failed, Message: "the result does not match the schema", Err: err}
	}
	return nil
}

// noRequests ignores requests from the target: SPDK never sends one.
type noRequests struct{}

func (noRequests) Handle(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}
