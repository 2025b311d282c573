package stream

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/web"
)

// Method is the name of the request that opens a stream in the log.
const Method = "stream.open"

// Sockets are the WebSockets of a server's clients. Its methods may be called concurrently.
type Sockets struct {
	gate   *gate.Gate
	web    *web.Server
	idle   time.Duration // after which a stream without calls is closed
	parked *parked

	mu     sync.Mutex
	open   map[*conn]*socket
	ofUser map[string]int
	left   chan struct{} // while draining: closed when none is open
}

// MaxPerUser is how many streams a user may have open. Connections are bounded in all and by their
// source.
const MaxPerUser = 64

// NewSockets makes Sockets.
func NewSockets(g *gate.Gate, w *web.Server, idle time.Duration) *Sockets {
	return &Sockets{gate: g, web: w, idle: idle, parked: newParked(), open: map[*conn]*socket{}, ofUser: map[string]int{}}
}

// Open serves Method: it counts a stream of the user, until the returned function is called.
func (s *Sockets) Open(r *gate.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ofUser[r.User] >= MaxPerUser {
		return nil, gate.ErrStreams
	}
	s.ofUser[r.User]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ofUser[r.User]--; s.ofUser[r.User] == 0 {
			delete(s.ofUser, r.User)
		}
	}, nil
}

// upgrader makes WebSockets of requests that the gate has allowed. What it refuses is no WebSocket.
var upgrader = websocket.Upgrader{
	Subprotocols: []string{Subprotocol}, HandshakeTimeout: clientconn.WriteWait, ReadBufferSize: firstBuffer, WriteBufferSize: firstBuffer,
	CheckOrigin: func(*http.Request) bool { return true }, // see identify
}

// Handler opens streams.
func (s *Sockets) Handler() http.HandlerFunc {
	page := s.web.Page(web.Page{
		Method: Method, Stream: true,
		Identify: s.identify,
		Write:    func(v *web.Visit, leave any) { s.serve(v, leave.(func())) },
	})
	return func(w http.ResponseWriter, r *http.Request) {
		if !websocket.IsWebSocketUpgrade(r) {
			s.web.SkipAnyBody(w, r)
			w.Header().Set("Upgrade", "websocket")
			http.Error(w, "this path is for WebSockets: send calls as JSON-RPC requests, by POST to /", http.StatusUpgradeRequired)
			return
		}
		page(w, r)
	}
}

// identify authenticates the sender of a request for a stream. A browser sends such a request for
// pages of any site, with the credentials that it has stored, so its Origin must be this server.
func (s *Sockets) identify(v *web.Visit) error {
	if err := s.web.AuthenticateByCredentials(v); err != nil {
		return err
	}
	if !web.SameOrigin(v.R) {
		return gate.ErrCrossOrigin
	}
	return nil
}

// serve performs the messages of a stream until it ends.
func (s *Sockets) serve(v *web.Visit, leave func()) {
	defer leave()
	ws, err := upgrader.Upgrade(hijacker{v.W}, v.R, http.Header{"X-Request-Id": {v.X.ID}})
	if err != nil {
		return // the upgrader has answered
	}
	over := ws.NetConn()
	s.gate.ConnState(over, http.StateNew)
	defer s.gate.ConnState(over, http.StateClosed)
	defer func() { _ = over.Close() }()
	sock := &socket{gate: s.gate, ws: ws, net: over, evidence: v.Evidence()}
	sock.who.user = v.X.Sender.User
	c := newConn(s.gate, sock, over, v.X.Source)
	ws.SetPingHandler(func(data string) error {
		sock.pong(c, data)
		return nil
	})
	ws.SetCloseHandler(func(code int, _ string) error {
		c.close(websocket.CloseNormalClosure, "")
		return nil
	})
	s.add(c, sock)
	defer s.remove(c)
	s.gate.Clients.Authenticated(over)
	c.serve(s.parked)
}

// closeWait bounds how long a client may take to read what comes before the end of its stream.
const closeWait = time.Second

// close sends the frame that closes a WebSocket, after the responses before it, and ends the
// connection. It takes at most closeWait.
func (c *conn) close(code int, reason string) {
	defer time.AfterFunc(closeWait, c.abort).Stop()
	c.send(closing(code, reason), c.abort)
	<-c.ctx.Done()
}

func (s *Sockets) add(c *conn, sock *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = sock
}

func (s *Sockets) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.closeIfLeft()
}

// closeIfLeft notes that the last client of a stopping server has closed its stream. The caller
// holds the lock.
func (s *Sockets) closeIfLeft() {
	if s.left == nil || len(s.open) > 0 {
		return
	}
	select {
	case <-s.left:
	default:
		close(s.left)
	}
}

// Count returns the number of open streams.
func (s *Sockets) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func (s *Sockets) list() map[*conn]*socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := make(map[*conn]*socket, len(s.open))
	for c, sock := range s.open {
		open[c] = sock
	}
	return open
}

// Watch closes streams whose sender is no longer authenticated, and those without calls, until ctx
// ends.
func (s *Sockets) Watch(ctx context.Context) {
	tick := time.NewTicker(recheck / 2)
	defer tick.Stop()
	checked := map[*conn]*credential{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		current, open := s.gate.Settings(), s.list()
		for c, sock := range open {
			known := checked[c]
			if known == nil {
				known = &credential{user: sock.who.user}
				checked[c] = known
			}
			if _, err := known.check(ctx, current.Authn, sock.evidence); gate.AnswerTo(err).Status == http.StatusUnauthorized {
				go c.close(websocket.ClosePolicyViolation, invalidCredentials)
			} else if c.out.idleSince(s.idle) {
				go c.close(websocket.CloseNormalClosure, "idle")
			}
		}
		for c := range checked {
			if open[c] == nil {
				delete(checked, c)
			}
		}
	}
}

// draining is the message by which a stopping server asks its clients to send further calls on new
// connections.
const draining = `{"jsonrpc":"2.0","method":"spdkgate.draining"}`

// Drain tells the clients of all streams that the server stops. The returned channel is closed when
// they have closed their streams: until then, calls may be on their way. It may be called once.
func (s *Sockets) Drain() (left <-chan struct{}) {
	for c := range s.list() {
		go c.send(frame(websocket.TextMessage, [][]byte{[]byte(draining)}), func() {})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = make(chan struct{})
	s.closeIfLeft()
	return s.left
}

// Close closes all streams, after what they still have to send. It may be called once.
func (s *Sockets) Close() {
	s.parked.end()
	var closing sync.WaitGroup
	for c := range s.list() {
		closing.Go(func() { c.close(websocket.CloseGoingAway, "the server stops") })
	}
	closing.Wait()
}

// A hijacker lets the upgrader take a connection over through the writers around it.
type hijacker struct{ http.ResponseWriter }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
