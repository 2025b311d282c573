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

// Method is the name under which the log lists a request that opens a stream.
const Method = "stream.open"

// Sockets manages the WebSockets of a server's clients. It is safe for concurrent use.
type Sockets struct {
	gate   *gate.Gate
	web    *web.Server
	idle   time.Duration // how long an idle stream stays open
	parked *parked

	mu     sync.Mutex
	open   map[*conn]*socket
	ofUser map[string]int
}

// MaxPerUser is the maximum number of open streams per user. Other limits apply to the total number
// of connections, and to the number per source.
const MaxPerUser = 64

// NewSockets returns Sockets without streams.
func NewSockets(g *gate.Gate, w *web.Server, idle time.Duration) *Sockets {
	return &Sockets{gate: g, web: w, idle: idle, parked: newParked(), open: map[*conn]*socket{}, ofUser: map[string]int{}}
}

// Open implements Method. It counts an open stream for the user until the returned function is
// called.
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

// upgrader turns authorized requests into WebSockets.
var upgrader = websocket.Upgrader{
	Subprotocols: []string{Subprotocol}, HandshakeTimeout: clientconn.WriteWait, ReadBufferSize: firstBuffer, WriteBufferSize: firstBuffer,
	CheckOrigin: func(*http.Request) bool { return true }, // package gate has checked the origin
}

// Handler returns the handler that opens streams.
func (s *Sockets) Handler() http.HandlerFunc {
	page := s.web.Page(web.Page{
		Method: Method, Stream: true,
		Identify: s.web.AuthenticateByCredentials, // a session cookie must not open a stream
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

// serve executes the messages on a stream until the stream ends.
func (s *Sockets) serve(v *web.Visit, leave func()) {
	defer leave()
	ws, err := upgrader.Upgrade(hijacker{v.W}, v.R, http.Header{"X-Request-Id": {v.X.ID}})
	if err != nil {
		return // the upgrader has responded
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

// closeWait limits how long a client may take to read the rest of its stream.
const closeWait = time.Second

// close sends the frame that closes a WebSocket, after all responses that are ready, and ends the
// connection. It takes at most closeWait.
func (c *conn) close(code int, reason string) {
	defer time.AfterFunc(closeWait, c.abort).Stop()
	c.send(closing(code, reason), nil, c.abort)
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

// leaveWait limits how long the client of an idle stream may take to close it. During this time,
// the proxy still serves calls that the client sent before the notification arrived.
const leaveWait = 5 * time.Second

// A watched contains the state that Watch keeps for a stream.
type watched struct {
	credential
	asked time.Time // when the client was asked to close the idle stream; zero if it was not
}

// Watch closes idle streams, and streams of users who are no longer authenticated, until ctx ends.
func (s *Sockets) Watch(ctx context.Context) {
	tick := time.NewTicker(recheck / 2)
	defer tick.Stop()
	known := map[*conn]*watched{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		current, open := s.gate.Settings(), s.list()
		for c, sock := range open {
			if known[c] == nil {
				known[c] = &watched{credential: credential{user: sock.who.user}}
			}
			if _, err := known[c].check(ctx, current.Authn, sock.evidence); gate.AnswerTo(err).Status == http.StatusUnauthorized {
				go c.close(websocket.ClosePolicyViolation, invalidCredentials)
				continue
			}
			known[c].endIdle(c, s.idle)
		}
		for c := range known {
			if open[c] == nil {
				delete(known, c)
			}
		}
	}
}

// endIdle asks the client of an idle stream to close it, and later closes the stream itself. If the
// stream were closed immediately, the outcome of a call in transit would be unknown.
func (w *watched) endIdle(c *conn, idle time.Duration) {
	switch {
	case !c.out.idleSince(idle):
		w.asked = time.Time{}
	case w.asked.IsZero():
		w.asked = time.Now()
		go c.sendDraining()
	case time.Since(w.asked) > leaveWait:
		go c.close(websocket.CloseNormalClosure, "idle")
	}
}

// draining is the message with which the server asks a client to send further calls on a new
// connection, because the server is stopping or the stream is idle.
const draining = `{"jsonrpc":"2.0","method":"spdkgate.draining"}`

// sendDraining sends the draining message, after all responses that are ready.
func (c *conn) sendDraining() {
	c.send(frame(websocket.TextMessage, [][]byte{[]byte(draining)}), nil, func() {})
}

// Drain notifies the clients of all streams that the server is stopping. Until a client has closed
// its stream, calls may be in transit.
func (s *Sockets) Drain() {
	for c := range s.list() {
		go c.sendDraining()
	}
}

// Close closes all streams after they have sent pending responses. It must be called at most once.
func (s *Sockets) Close() {
	s.parked.end()
	var closing sync.WaitGroup
	for c := range s.list() {
		closing.Go(func() { c.close(websocket.CloseGoingAway, "the server stops") })
	}
	closing.Wait()
}

// A hijacker lets the upgrader take over the connection of a ResponseWriter that is wrapped in
// other writers.
type hijacker struct{ http.ResponseWriter }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}
