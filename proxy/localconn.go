package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/localsocket"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A localConn is a connection of a program on this host that speaks SPDK's own protocol: messages,
// each a request or a batch, follow each other without a separator, and are answered in the order
// in which they end.
//
// Messages are started in the order in which they arrived, as SPDK does: the goroutine that has read
// a message performs it, and passes the right to read on to another goroutine as soon as SPDK has
// got the message's last call, or keeps it if the message has ended before.
type localConn struct {
	server *Server
	conn   *clientconn.Conn
	peer   localsocket.Peer
	ctx    context.Context // ends when the client has disconnected
	cancel context.CancelFunc

	in      localInput     // only for the goroutine that has the right to read
	started chan struct{}  // has an item for each message that has not been answered
	passOn  func()         // lets another goroutine read
	running sync.WaitGroup // the goroutines
	who     localIdentity  // only for the goroutine that has the right to read
	out     localOutput
}

// maxPipelined is how many messages of one connection are performed at once. Further ones are not
// read meanwhile.
const maxPipelined = 256

// serveLocalConn answers the messages on a connection until it ends.
func (s *Server) serveLocalConn(conn *clientconn.Conn, goroutines *parked) {
	defer s.connState(conn, http.StateClosed)
	defer func() { _ = conn.Close() }()
	peer, err := localsocket.PeerOf(conn.Conn)
	if err != nil {
		s.log.Warn("local connection closed: its user is unknown", "error", err)
		return
	}
	c := &localConn{server: s, conn: conn, peer: peer, started: make(chan struct{}, maxPipelined)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	defer c.cancel()
	c.out.write = func(text []byte) error {
		_, err := conn.Write(text)
		return err
	}
	read := func() {
		defer c.running.Done()
		c.read()
	}
	c.passOn = func() {
		c.running.Add(1)
		goroutines.run(read)
	}
	c.passOn()
	c.running.Wait()
}

// read reads and performs messages until the connection ends, or another goroutine reads.
func (c *localConn) read() {
	defer func() {
		if p := recover(); p != nil {
			c.server.panicked("local socket", p)
			c.abort()
		}
	}()
	for {
		c.started <- struct{}{}
		text, err := c.next()
		if err != nil {
			<-c.started
			c.endReading(err)
			return
		}
		if passedOn := c.handle(text, nil); passedOn {
			return
		}
	}
}

// endReading ends the right to read. err is why no further message was read. If the client can
// still get an answer, it gets err as one.
func (c *localConn) endReading(err error) {
	var answer *jsonrpc.Error
	var tooLong *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		if !c.gone() {
			return // it has closed its half only, and waits for answers
		}
		c.cancel()
	case errors.As(err, &answer), errors.As(err, &tooLong), errors.Is(err, errSlowBody), errors.Is(err, errMemory), errors.Is(err, authn.ErrWrongCredentials):
		c.started <- struct{}{}
		c.handle(nil, err)
	case errors.Is(err, errIdle):
	default: // such as a reset
		c.cancel()
	}
}

// gone reports whether the client has closed the connection.
func (c *localConn) gone() bool { return localsocket.HungUp(c.conn.Conn) }

// noticeAfter is how long a call may wait until it is sent, such as for a slot, before it matters
// that its client may have disconnected meanwhile: nobody reads the connection then.
const noticeAfter = 10 * time.Millisecond

// errIdle ends a connection without calls.
var errIdle = errors.New("the connection was idle")

// handle performs a message, or refuses it with err. It reports whether it has passed the right to
// read on, or ended it.
func (c *localConn) handle(text []byte, err error) (passedOn bool) {
	s := c.server
	now := s.settings.Load()
	x := &exchange{id: newID(), arrived: time.Now(), local: true}
	x.source = auditlog.Source{Process: auditlog.Process{UID: c.peer.UID, PID: c.peer.PID}}
	c.out.begin(func() { s.connState(c.conn, http.StateActive) })
	answered := false
	defer func() { // in a panic only
		if !answered {
			c.finish(x)
		}
	}()

	elements, batch, err := s.receiveLocal(now, x, c, text, err)
	x.noteCalls(elements, batch, err)
	broken := breaksStream(err)
	for _, call := range x.calls {
		call.observer.Gone = func() bool { return time.Since(x.arrived) > noticeAfter && c.gone() }
	}
	x.calls[len(x.calls)-1].observer.Sent = func() {
		if !broken && !passedOn {
			passedOn = true
			c.passOn()
		}
	}
	s.performInTurn(c.ctx, now, x)
	answered = true
	c.reply(x)
	return passedOn || broken
}

// breaksStream reports whether nothing can be read after a message that is refused with err: where
// the next message begins is unknown, as the text is not JSON or was not read to its end.
func breaksStream(err error) bool {
	var malformed *jsonrpc.Error
	var tooLong *http.MaxBytesError
	if errors.As(err, &malformed) {
		return malformed.Code == jsonrpc.CodeParseError || malformed.Code == jsonrpc.CodeTooLarge || errors.Is(err, errNoMessage)
	}
	return errors.As(err, &tooLong) || errors.Is(err, errSlowBody)
}

// receiveLocal is receive for a message on the socket for programs of this host: it identifies the
// user, and decodes the message strictly. A refusal of the user is the error of each request, so
// that the answers have the requests' ids.
func (s *Server) receiveLocal(now *settings, x *exchange, c *localConn, text []byte, refused error) (elements []jsonrpc.Element, batch bool, err error) {
	defer s.recoverFrom(x, &err)
	c.in.releaseMemory(&s.memory)
	who, denied := c.who.identify(now.authn, c.peer)
	x.noteSender(now.authn, who, denied)
	if denied == nil && !s.clients.Authenticated(c.conn) {
		return nil, false, errGone
	}
	if refused != nil {
		return nil, false, refused
	}
	if denied == nil {
		denied = s.inFlight.enter(c.conn)
		x.entered = denied == nil
	}
	if denied == nil {
		x.reserved, denied = s.memory.Reserve(x.sender.user, decodedSize*len(text))
	}
	elements, batch, err = jsonrpc.DecodeMessage(text, jsonrpc.LimitsV2605)
	if denied != nil {
		for i := range elements {
			elements[i].Err = denied
		}
	}
	return elements, batch, err
}

// reply queues the answer of a message.
func (c *localConn) reply(x *exchange) {
	c.out.add(localReply{x.localText(), func() { c.finish(x) }}, func() {
		c.server.clients.NextPart(c.conn)
	}, c.abort)
}

// finish releases what a message has taken, after its answer was written.
func (c *localConn) finish(x *exchange) {
	s := c.server
	s.releaseMemory(x)
	c.out.end(func() { s.connState(c.conn, http.StateIdle) })
	if x.entered {
		s.inFlight.leave()
	}
	<-c.started
}

// abort ends the connection, whose answers cannot be written.
func (c *localConn) abort() {
	c.cancel()
	_ = c.conn.Close()
}

// next returns the next message. It is valid until the right to read is passed on.
func (c *localConn) next() ([]byte, error) {
	now := c.server.settings.Load()
	for {
		text, err := c.in.message(now.maxBody)
		if text != nil || err != nil {
			return text, err
		}
		if err := c.reserveLong(now); err != nil {
			return nil, err
		}
		if err := c.fill(now); err != nil {
			return nil, err
		}
	}
}

// fill reads what has arrived. A message that has begun to arrive must be complete in time.
func (c *localConn) fill(now *settings) error {
	limit := time.Now().Add(time.Duration(c.server.config.ListenUnix.Idle))
	if c.in.begun() {
		limit = c.in.began.Add(now.read)
	}
	if err := c.conn.SetReadDeadline(limit); err != nil {
		return err
	}
	err := c.in.fill(c.conn)
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case c.in.begun():
		return errSlowBody
	case c.out.idle():
		return errIdle
	}
	return nil // a call is running
}

// reserveLong counts the memory of a message that does not fit into the first buffer, before it is
// read. Users who are not authenticated cannot send one.
func (c *localConn) reserveLong(now *settings) error {
	if !c.in.full() || c.in.reserved > 0 {
		return nil
	}
	who, err := c.who.identify(now.authn, c.peer)
	if err != nil {
		return err
	}
	n, err := c.server.memory.Reserve(who.User, decodedSize*now.maxBody)
	c.in.reserved, c.in.reservedFor = n, who.User
	return err
}

// A localIdentity remembers who a process is, until the configuration is reloaded.
type localIdentity struct {
	by  *authn.Authenticator
	who authn.Identity
	err error
}

func (l *localIdentity) identify(by *authn.Authenticator, p localsocket.Peer) (authn.Identity, error) {
	if l.by != by {
		l.by = by
		l.who, l.err = by.Authenticate(context.Background(), authn.Evidence{Peer: &authn.Peer{UID: p.UID, GID: p.GID, Groups: p.Groups}})
	}
	return l.who, l.err
}
