package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/localsocket"
)

// ListenLocal creates the socket for programs of this host; nil if the configuration has none. The
// listener removes the socket when it is closed.
func (s *Server) ListenLocal() (net.Listener, error) {
	u := s.config.ListenUnix
	if u.Path == "" {
		return nil, nil
	}
	perm, uid, gid, err := u.Permissions()
	if err != nil {
		return nil, err
	}
	l, err := localsocket.Listen(localsocket.Place{Path: u.Path, Mode: perm, UID: uid, GID: gid})
	if err != nil {
		return nil, fmt.Errorf("listen_unix: %w", err)
	}
	return l, nil
}

// A localServer serves the sockets for programs of this host.
type localServer struct {
	server    *Server
	listeners []net.Listener
	accepting sync.WaitGroup
	parked    *parked

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// serveLocal answers requests on listeners until stopAccepting and closeConns.
func (s *Server) serveLocal(listeners []net.Listener) *localServer {
	l := &localServer{server: s, listeners: listeners, conns: map[net.Conn]struct{}{}, parked: newParked()}
	for _, each := range listeners {
		s.log.Info("serving programs of this host", "listen_unix", each.Addr().String())
		l.accepting.Go(func() { l.accept(s.clients.LocalListener(each, localSource)) })
	}
	return l
}

// localSource names the user that a connection comes from, because each user may have a limited
// number of connections.
func localSource(c net.Conn) string {
	p, err := localsocket.PeerOf(c)
	if err != nil {
		return "unix"
	}
	return fmt.Sprintf("unix:uid=%d", p.UID)
}

// acceptRetry is the time before the next attempt to accept after an error, such as too many open
// files.
const acceptRetry = 100 * time.Millisecond

func (l *localServer) accept(from net.Listener) {
	for failed := false; ; {
		conn, err := from.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !failed {
				l.server.log.Error("cannot accept a connection; the proxy retries", "listen_unix", from.Addr().String(), "error", err)
			}
			failed = true
			time.Sleep(acceptRetry)
		default:
			failed = false
			l.server.connState(conn, http.StateNew)
			l.start(conn.(*clientconn.Conn))
		}
	}
}

func (l *localServer) start(conn *clientconn.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		l.server.connState(conn, http.StateClosed)
		return
	}
	l.conns[conn] = struct{}{}
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.conns, conn)
		}()
		l.server.serveLocalConn(conn, l.parked)
	}()
}

// stopAccepting closes the listeners, and waits until no further connection is accepted.
func (l *localServer) stopAccepting() {
	for _, each := range l.listeners {
		_ = each.Close()
	}
	l.accepting.Wait()
}

// closeConns closes all connections, and those that are accepted later.
func (l *localServer) closeConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.parked.end()
	}
	l.closed = true
	for conn := range l.conns {
		_ = conn.Close()
	}
}
