package stream

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/proxy/localsocket"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A process is the transport for a program on this host that uses SPDK's own protocol, in which
// nothing separates messages.
type process struct {
	gate *gate.Gate
	conn *clientconn.Conn
	peer localsocket.Peer
	idle time.Duration // how long an idle connection stays open
	in   input
	who  localIdentity
}

// serveConn handles the messages on a connection until the connection ends.
func (l *Local) serveConn(conn *clientconn.Conn) {
	defer l.gate.ConnState(conn, http.StateClosed)
	defer func() { _ = conn.Close() }()
	peer, err := localsocket.PeerOf(conn.Conn)
	if err != nil {
		l.gate.Log.Warn("local connection closed: its user is unknown", "error", err)
		return
	}
	p := &process{gate: l.gate, conn: conn, peer: peer, idle: l.idle}
	newConn(l.gate, p, conn, auditlog.Source{Process: auditlog.Process{UID: peer.UID, PID: peer.PID}}).serve(l.parked)
}

func (p *process) likeSPDK() bool { return true }

func (p *process) gone() bool { return localsocket.HungUp(p.conn.Conn) }

func (p *process) release() { p.in.releaseMemory(p.gate) }

func (p *process) identify(current *gate.Settings, x *gate.Exchange) error {
	who, err := p.who.identify(current.Authn, p.peer)
	x.NoteSender(current.Authn, who, err)
	return err
}

// breaks reports whether it is unknown where the next message begins, because the text is not JSON
// or was not read to its end.
func (p *process) breaks(err error) bool {
	var malformed *jsonrpc.Error
	var tooLong *http.MaxBytesError
	if errors.As(err, &malformed) {
		return malformed.Code == jsonrpc.CodeParseError || malformed.Code == jsonrpc.CodeTooLarge || errors.Is(err, errNoMessage)
	}
	return errors.As(err, &tooLong) || errors.Is(err, gate.ErrSlowBody)
}

func (p *process) ending(error) [][]byte { return nil }

// frame appends a newline to a response, as SPDK does.
func (p *process) frame(parts [][]byte) [][]byte { return append(parts, []byte("\n")) }

func (p *process) next(c *conn) ([]byte, error) {
	current := p.gate.Settings()
	for {
		text, err := p.in.message(current.MaxBody)
		if text != nil || err != nil {
			return text, err
		}
		if err := p.reserveLong(current); err != nil {
			return nil, err
		}
		if err := p.fill(c, current); err != nil {
			return nil, err
		}
	}
}

// fill reads the data that has arrived. Once a message has begun to arrive, it must be complete
// within a time limit.
func (p *process) fill(c *conn, current *gate.Settings) error {
	limit := time.Now().Add(p.idle)
	if p.in.begun() {
		limit = p.in.began.Add(current.Read)
	}
	if err := p.conn.SetReadDeadline(limit); err != nil {
		return err
	}
	err := p.in.fill(p.conn)
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case p.in.begun():
		return gate.ErrSlowBody
	case c.out.idle():
		return errIdle
	}
	return nil // a call is running
}

// reserveLong reserves memory for a message that does not fit into the first buffer, before the
// message is read. Unauthenticated users cannot send such messages.
func (p *process) reserveLong(current *gate.Settings) error {
	if !p.in.full() || p.in.reserved > 0 {
		return nil
	}
	who, err := p.who.identify(current.Authn, p.peer)
	if err != nil {
		return err
	}
	n, err := p.gate.ReserveFor(who.User, gate.DecodedSize*current.MaxBody)
	p.in.reserved, p.in.reservedFor = n, who.User
	return err
}

// A localIdentity caches a process's user until the configuration is reloaded.
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
