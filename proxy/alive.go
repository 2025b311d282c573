package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// Alive tells whether this process still serves, by asking for /healthz on a
// connection that begins and ends in it: net/http, the handler and the locks
// that each call takes all have their part in the answer. It says nothing about
// the target, and needs no network, so that neither a target that is away nor a
// flood of clients makes the service look dead. It is for a server that serves.
func (s *Server) Alive(ctx context.Context) error {
	conn, err := s.inside.dial(ctx)
	if err != nil {
		return fmt.Errorf("no connection is accepted: %w", err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return fmt.Errorf("no request is read: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return fmt.Errorf("no answer comes: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	return nil
}

// insideListener accepts connections from this process only.
type insideListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInsideListener() *insideListener {
	return &insideListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *insideListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- insideConn{there}:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *insideListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *insideListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *insideListener) Addr() net.Addr { return insideAddr }

// insideAddr is where such connections come from: what looks at a source finds one.
var insideAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}

type insideConn struct{ net.Conn }

func (insideConn) RemoteAddr() net.Addr { return insideAddr }
