package stream

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/localsocket"
)

// ListenLocal creates the socket for programs on this host. If none is configured, it returns nil.
// Closing the listener removes the socket.
func ListenLocal(u config.ListenUnix) (net.Listener, error) {
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

// A Local serves the sockets for programs on this host.
type Local struct {
	gate      *gate.Gate
	idle      time.Duration // how long an idle connection stays open
	listeners []net.Listener
	accepting sync.WaitGroup
	parked    *parked

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// ServeLocal accepts connections on listeners and handles their messages until StopAccepting and
// CloseConns are called. A connection without calls is closed after idle.
func ServeLocal(g *gate.Gate, idle time.Duration, listeners []net.Listener) *Local {
	l := &Local{gate: g, idle: idle, listeners: listeners, conns: map[net.Conn]struct{}{}, parked: newParked()}
	for _, each := range listeners {
		g.Log.Info("serving programs of this host", "listen_unix", each.Addr().String())
		l.accepting.Go(func() { l.accept(g.Clients.LocalListener(each, localSource)) })
	}
	return l
}

// localSource returns the user who opened a connection, because the number of connections per user
// is limited.
func localSource(c net.Conn) string {
	p, err := localsocket.PeerOf(c)
	if err != nil {
		return "unix"
	}
	return fmt.Sprintf("unix:uid=%d", p.UID)
}

// acceptRetry is the delay before the next attempt after an accept error, such as too many open
// files.
const acceptRetry = 100 * time.Millisecond

func (l *Local) accept(from net.Listener) {
	for failed := false; ; {
		conn, err := from.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !failed {
				l.gate.Log.Error("cannot accept a connection; the proxy retries", "listen_unix", from.Addr().String(), "error", err)
			}
			failed = true
			time.Sleep(acceptRetry)
		default:
			failed = false
			l.gate.ConnState(conn, http.StateNew)
			l.start(conn.(*clientconn.Conn))
		}
	}
}

func (l *Local) start(conn *clientconn.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		l.gate.ConnState(conn, http.StateClosed)
		return
	}
	l.conns[conn] = struct{}{}
	go func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.conns, conn)
		}()
		l.serveConn(conn)
	}()
}

// StopAccepting closes the listeners, and returns once no further connections are accepted.
func (l *Local) StopAccepting() {
	for _, each := range l.listeners {
		_ = each.Close()
	}
	l.accepting.Wait()
}

// CloseConns closes all connections, including those accepted later.
func (l *Local) CloseConns() {
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
