package spdkrpc

import (
	"context"
	"net"
)

// dialing describes a single connection attempt, shared by all callers that need the connection.
// The attempt continues as long as at least one of these callers is waiting.
type dialing struct {
	done    chan struct{} // closed when stream or err is set
	stream  *stream
	err     error
	waiters int // guarded by Socket.mu
	cancel  context.CancelFunc
}

// connect returns the current connection, or establishes one. It waits no longer than ctx allows,
// and does not hold the lock while it waits.
func (s *Socket) connect(ctx context.Context) (*stream, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, net.ErrClosed
	}
	if s.living() {
		defer s.mu.Unlock()
		return s.stream, nil
	}
	if s.once && s.stream != nil {
		s.mu.Unlock()
		return nil, net.ErrClosed
	}
	d := s.dialing
	if d == nil {
		var background context.Context
		d = &dialing{done: make(chan struct{})}
		background, d.cancel = context.WithCancel(context.Background())
		s.dialing = d
		go s.dial(background, d)
	}
	d.waiters++
	s.mu.Unlock()
	select {
	case <-d.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.waiters--; d.waiters == 0 {
		d.cancel()
		if s.dialing == d {
			s.dialing = nil // no caller is waiting, so let the next one dial again
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.stream, d.err
}

// living reports whether there is a live connection. The caller must hold the lock.
func (s *Socket) living() bool {
	if s.stream == nil {
		return false
	}
	select {
	case <-s.stream.ended:
		return false
	default:
		return true
	}
}

// dial connects and checks the peer, then publishes the connection.
func (s *Socket) dial(ctx context.Context, d *dialing) {
	c, err := s.dialChecked(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(d.done)
	if s.dialing == d {
		s.dialing = nil
	}
	switch {
	case err != nil:
		d.err = err
		return
	case s.closed:
		_ = c.Close()
		d.err = net.ErrClosed
		return
	// after all callers had abandoned this attempt, a later one established a connection
	case s.living():
		_ = c.Close()
		d.stream = s.stream
		return
	}
	s.stream = newStream(newSocketFraming(c), 0, 0)
	d.stream = s.stream
	go s.stream.run()
}

func (s *Socket) dialChecked(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", s.path)
	if err != nil || s.check == nil {
		return c, err
	}
	if err := s.check(c); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}
