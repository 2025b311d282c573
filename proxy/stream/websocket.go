package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// Subprotocol is the WebSocket subprotocol for JSON-RPC messages.
const Subprotocol = "jsonrpc"

// recheck is how long a stream's user remains authenticated. After a reload, the proxy immediately
// authenticates the user again.
const recheck = time.Second

// A socket is the transport for a WebSocket, in which each text message is a request or a batch.
type socket struct {
	gate     *gate.Gate
	ws       *websocket.Conn
	net      net.Conn
	evidence authn.Evidence
	buffer   []byte
	who      credential

	pongWaits atomic.Bool // whether a pong is waiting to be written

	reserved int // bytes of the user's memory budget reserved for a long message
}

// A credential caches the identity that a stream's credentials authenticate.
type credential struct {
	by   *authn.Authenticator
	at   time.Time
	who  authn.Identity
	err  error
	user string // the user who opened the stream
}

// check authenticates the user of a stream, unless the last check was recent.
func (c *credential) check(ctx context.Context, by *authn.Authenticator, evidence authn.Evidence) (authn.Identity, error) {
	if now := time.Now(); c.by != by || now.Sub(c.at) > recheck {
		c.by, c.at = by, now
		c.who, c.err = by.Authenticate(ctx, evidence)
		if c.err == nil && c.user != "" && c.who.User != c.user {
			c.err = authn.ErrCredentialChanged
		}
		if c.err == nil && c.user == "" { // set only once, because other goroutines read it
			c.user = c.who.User
		}
	}
	return c.who, c.err
}

func (s *socket) likeSPDK() bool { return false }

func (s *socket) identify(current *gate.Settings, x *gate.Exchange) error {
	who, err := s.who.check(context.Background(), current.Authn, s.evidence)
	x.NoteSender(current.Authn, who, err)
	return err
}

func (s *socket) release() {
	s.gate.ReleaseFor(s.who.user, s.reserved)
	s.reserved = 0
}

// breaks reports whether a message was not read to its end, or whether the user is no longer
// permitted to send messages.
func (s *socket) breaks(err error) bool {
	var tooLong *http.MaxBytesError
	return errors.As(err, &tooLong) || errors.Is(err, gate.ErrSlowBody) || errors.Is(err, errBinary) || gate.AnswerTo(err).Status == http.StatusUnauthorized
}

// ending closes the WebSocket with the reason.
func (s *socket) ending(err error) [][]byte {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return closing(websocket.CloseMessageTooBig, "the message is too large")
	case errors.Is(err, errBinary):
		return closing(websocket.CloseUnsupportedData, "send text messages")
	case errors.Is(err, gate.ErrSlowBody):
		return closing(websocket.CloseProtocolError, "the message did not arrive in time")
	}
	return closing(websocket.ClosePolicyViolation, invalidCredentials)
}

const invalidCredentials = "the credentials are no longer valid: authenticate again on a new connection"

// errBinary is the error for a message that is not text.
var errBinary = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "send requests as text messages: this one is binary")

// next reads the next message. There is no time limit until a message begins to arrive; from then
// on, it must be complete within a time limit. Sockets.Watch closes idle connections.
func (s *socket) next(*conn) ([]byte, error) {
	kind, r, err := s.ws.NextReader()
	if err != nil {
		return nil, err
	}
	if kind != websocket.TextMessage {
		return nil, errBinary
	}
	current := s.gate.Settings()
	if err := s.net.SetReadDeadline(time.Now().Add(current.Read)); err != nil {
		return nil, err
	}
	text, err := s.read(r, current.MaxBody)
	var network net.Error
	switch {
	case errors.As(err, &network) && network.Timeout():
		return nil, gate.ErrSlowBody
	case err != nil:
		return nil, err
	}
	return text, s.net.SetReadDeadline(time.Time{})
}

// read reads a message of at most limit bytes. Once the message no longer fits into the first
// buffer, read reserves memory for it.
func (s *socket) read(r io.Reader, limit int) ([]byte, error) {
	if cap(s.buffer) > keptBuffer || s.buffer == nil {
		s.buffer = make([]byte, 0, firstBuffer)
	}
	text := s.buffer[:0]
	for {
		if len(text) > limit {
			s.skip(r)
			return nil, &http.MaxBytesError{Limit: int64(limit)}
		}
		if len(text) == cap(text) {
			if s.reserved == 0 {
				n, err := s.gate.ReserveFor(s.who.user, gate.DecodedSize*limit)
				if err != nil {
					return nil, err
				}
				s.reserved = n
			}
			grown := make([]byte, len(text), 2*cap(text))
			copy(grown, text)
			text = grown
		}
		n, err := r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		s.buffer = text
		if errors.Is(err, io.EOF) {
			if len(text) > limit {
				return nil, &http.MaxBytesError{Limit: int64(limit)}
			}
			return text, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// maxSkipped and skipWait limit how much of the rest of an overlong message is read, in bytes and
// in time. Reading the rest lets the client read the response before the connection is closed.
const (
	maxSkipped = 4 << 20
	skipWait   = time.Second
)

// skip reads the rest of a message.
func (s *socket) skip(r io.Reader) {
	if s.net.SetReadDeadline(time.Now().Add(skipWait)) == nil {
		_, _ = io.CopyN(io.Discard, r, maxSkipped)
	}
}

// frame returns a text message with a response. The message is a single frame without a mask.
func (s *socket) frame(parts [][]byte) [][]byte { return frame(websocket.TextMessage, parts) }

// pong responds to a ping, unless an earlier pong is still waiting to be written. Otherwise, a
// client that does not read could exhaust memory with pings.
func (s *socket) pong(c *conn, data string) {
	if s.pongWaits.CompareAndSwap(false, true) {
		c.send(frame(websocket.PongMessage, [][]byte{[]byte(data)}), nil, func() { s.pongWaits.Store(false) })
	}
}

// These are the bits and lengths in the header of a frame.
const (
	finalFrame = 0x80
	length16   = 126 // the next two bytes contain the length
	length64   = 127 // the next eight bytes contain the length
)

// frame puts a header before the payload of a frame.
func frame(kind int, payload [][]byte) [][]byte {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	header := make([]byte, 2, 10)
	header[0] = byte(finalFrame | kind)
	switch {
	case n < length16:
		header[1] = byte(n)
	case n < 1<<16:
		header[1] = length16
		header = append(header, byte(n>>8), byte(n))
	default:
		header[1] = length64
		for shift := 56; shift >= 0; shift -= 8 {
			header = append(header, byte(n>>shift))
		}
	}
	return append([][]byte{header}, payload...)
}

// closing returns the frame that closes a WebSocket with a code and a reason.
func closing(code int, reason string) [][]byte {
	return frame(websocket.CloseMessage, [][]byte{websocket.FormatCloseMessage(code, reason)})
}

// gone always returns false. A WebSocket is read while its messages are being executed, so conn.ctx
// ends when the client disconnects.
func (s *socket) gone() bool { return false }
