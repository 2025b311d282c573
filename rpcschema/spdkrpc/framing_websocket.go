package spdkrpc

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
)

// closeWait limits the time for writing the last message of a connection.
const closeWait = time.Second

// A webSocket implements the framing of RFC 6455, in which each text message is a JSON-RPC message.
type webSocket struct {
	ws   *websocket.Conn
	conn *gathering // the connection below ws
	wake func()     // called when a pong is waiting to be written
	in   *bytes.Buffer
	dec  *jsontext.Decoder
	ends []int
}

func newWebSocket(ws *websocket.Conn, conn *gathering) *webSocket {
	w := &webSocket{ws: ws, conn: conn, wake: func() {}, in: new(bytes.Buffer), dec: jsontext.NewDecoder(noInput)}
	ws.SetReadLimit(maxMessage)
	ws.SetPingHandler(func(data string) error {
		if !w.mayAnswer() {
			return nil
		}
		_ = ws.WriteControl(websocket.PongMessage, []byte(data), time.Time{}) // fails only if the connection ends
		w.wake()
		return nil
	})
	// the method close sends the response
	ws.SetCloseHandler(func(int, string) error { return nil })
	return w
}

// mayAnswer reports whether a pong may be queued. The limit is necessary because the peer may send
// pings without reading the pongs.
func (w *webSocket) mayAnswer() bool { return w.conn.waiting() <= maxControl }

// maxControl is the maximum number of bytes of pongs that may be waiting to be written.
const maxControl = 4 << 10

func (w *webSocket) write(messages [][]byte) (complete int, err error) {
	w.ends = w.ends[:0]
	for _, m := range messages {
		if err := w.ws.WriteMessage(websocket.TextMessage, m); err != nil {
			w.conn.seal() // so that no part of the message is written
			return 0, err
		}
		w.ends = append(w.ends, w.conn.waiting())
	}
	n, err := w.conn.flush()
	for complete < len(messages) && w.ends[complete] <= n {
		complete++
	}
	return complete, err
}

func (w *webSocket) read() (message, error) {
	kind, r, err := w.ws.NextReader()
	if err != nil {
		return message{}, err
	}
	if kind != websocket.TextMessage {
		return message{}, errors.New("the proxy sent a binary message")
	}
	w.in.Reset()
	if _, err := w.in.ReadFrom(r); err != nil {
		return message{}, err
	}
	m, err := messageOf(w.dec, w.in.Bytes())
	if w.in.Len() > longResponse {
		w.in = new(bytes.Buffer)
		return m, err
	}
	m.result, m.failure = slices.Clone(m.result), slices.Clone(m.failure)
	return m, err
}

func (w *webSocket) ping() error { return w.ws.WriteControl(websocket.PingMessage, nil, time.Time{}) }

func (w *webSocket) heard() uint64 { return w.conn.reads.Load() }

// close sends a close frame unless a write is in progress, and closes the connection.
func (w *webSocket) close() error {
	if w.conn.seal() {
		// A zero mask is safe, because a control frame without user data has nothing to hide.
		frame := []byte{0x80 | websocket.CloseMessage, 0x80 | 2, 0, 0, 0, 0, websocket.CloseNormalClosure >> 8, websocket.CloseNormalClosure & 0xff}
		_ = w.conn.Conn.SetWriteDeadline(time.Now().Add(closeWait))
		_, _ = w.conn.Conn.Write(frame)
	}
	return w.conn.Conn.Close()
}

// A gathering is a connection that buffers writes until flush is called, and that counts reads.
type gathering struct {
	net.Conn
	reads atomic.Uint64

	mu      sync.Mutex
	gathers bool // writes are buffered
	sealed  bool // further writes fail
	flushes bool // a write is in progress
	out     []byte
	spare   []byte
}

// gather starts buffering.
func (g *gathering) gather() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gathers = true
}

func (g *gathering) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if n > 0 {
		g.reads.Add(1)
	}
	return n, err
}

func (g *gathering) Write(p []byte) (int, error) {
	g.mu.Lock()
	switch {
	case g.sealed:
		g.mu.Unlock()
		return 0, net.ErrClosed
	case g.gathers:
		g.out = append(g.out, p...)
		g.mu.Unlock()
		return len(p), nil
	}
	g.mu.Unlock()
	return g.Conn.Write(p)
}

// SetWriteDeadline has no effect on buffered writes, because flush has its own deadline.
func (g *gathering) SetWriteDeadline(t time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gathers {
		return nil
	}
	return g.Conn.SetWriteDeadline(t)
}

// waiting returns the number of bytes that the next flush will write.
func (g *gathering) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.out)
}

// flush writes the buffer, and returns how much was written. Only one goroutine at a time may call
// it.
func (g *gathering) flush() (int, error) {
	g.mu.Lock()
	if g.sealed {
		g.mu.Unlock()
		return 0, net.ErrClosed
	}
	out := g.out
	g.out, g.spare, g.flushes = g.spare[:0], nil, true
	g.mu.Unlock()
	n, err := 0, g.Conn.SetWriteDeadline(time.Now().Add(writeBound))
	if err == nil && len(out) > 0 {
		n, err = g.Conn.Write(out)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.flushes = false
	if cap(out) <= longResponse {
		g.spare = out[:0]
	}
	return n, err
}

// seal discards the buffer and makes all further writes fail. It reports whether no write is in
// progress.
func (g *gathering) seal() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sealed, g.out = true, nil
	return !g.flushes
}
