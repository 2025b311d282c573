package stream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A conn is a connection that carries a sequence of messages, each a request or a batch. Responses
// are sent in the order in which the messages are completed.
//
// The goroutine that has read a message executes it, and passes the right to read on to another
// goroutine. If messages must start in order of arrival, as in SPDK, it does so when SPDK has
// received the message's last call, and keeps the right if the message ends earlier. Otherwise, it
// passes on the right immediately, so that a deletion, which first makes other calls, does not
// delay other messages.
type conn struct {
	transport
	gate   *gate.Gate
	net    net.Conn
	source auditlog.Source
	ctx    context.Context // ends when the client disconnects
	cancel context.CancelFunc

	started chan struct{}  // contains an element for each message without a response
	passOn  func()         // lets another goroutine read from the connection
	running sync.WaitGroup // counts the goroutines
	out     output
}

// A transport implements the differences between kinds of connections. Except for gone and frame,
// its methods may be called only by the goroutine with the right to read.
type transport interface {
	// next returns the next message, which is valid until next is called again.
	next(c *conn) ([]byte, error)
	// identify authenticates and records the user who sent a message.
	identify(current *gate.Settings, x *gate.Exchange) error
	// release releases the memory that next has reserved for a message.
	release()
	// likeSPDK reports whether messages start in order, and requests without an id get error
	// responses.
	likeSPDK() bool
	// breaks reports whether no further message can be read after a message that was refused with
	// err.
	breaks(err error) bool
	// ending returns the last text for the client if no message can be read after err, or nil if
	// there is none.
	ending(err error) [][]byte
	// frame returns the text to send for a response.
	frame(parts [][]byte) [][]byte
	// gone reports whether the client has closed the connection. It is called while no goroutine
	// reads from the connection.
	gone() bool
}

// maxPipelined is the maximum number of messages from one connection that are executed
// concurrently. Further messages are read only after one of these has ended.
const maxPipelined = 256

func newConn(g *gate.Gate, transport transport, over net.Conn, source auditlog.Source) *conn {
	c := &conn{transport: transport, gate: g, net: over, source: source, started: make(chan struct{}, maxPipelined)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.out.ended = time.Now()
	c.out.write = func(text []byte) error {
		_, err := over.Write(text)
		return err
	}
	return c
}

// serve executes the messages on a connection until the connection ends.
func (c *conn) serve(goroutines *parked) {
	defer c.cancel()
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

// read reads and executes messages until the connection ends or another goroutine takes over
// reading.
func (c *conn) read() {
	defer func() {
		if p := recover(); p != nil {
			c.gate.Panicked("stream", p)
			c.abort()
		}
	}()
	for {
		c.started <- struct{}{}
		text, err := c.next(c)
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

// endReading ends reading from the connection. err is the reason why no further message was read;
// if the client can still receive a response, it receives err.
func (c *conn) endReading(err error) {
	var answer *jsonrpc.Error
	var tooLong *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		if !c.gone() {
			return // the client has closed only its half, and is waiting for responses
		}
		c.cancel()
	case errors.As(err, &answer), errors.As(err, &tooLong), errors.Is(err, gate.ErrSlowBody), errors.Is(err, gate.ErrMemory), errors.Is(err, authn.ErrWrongCredentials):
		c.started <- struct{}{}
		c.handle(nil, err)
	case errors.Is(err, errIdle):
	default: // another error, such as a reset connection
		c.cancel()
	}
}

// noticeAfter is how long an unsent call may wait, for example for a slot, before the proxy checks
// whether the client has disconnected. The check is necessary because no goroutine reads from the
// connection while such a call waits.
const noticeAfter = 10 * time.Millisecond

// errIdle is the reason for closing a connection without calls.
var errIdle = errors.New("the connection was idle")

// handle executes a message, or refuses it with err. It reports whether it has passed on the right
// to read or ended the connection.
func (c *conn) handle(text []byte, err error) (passedOn bool) {
	current := c.gate.Settings()
	x := gate.NewExchange(c.source)
	x.LikeSPDK = c.likeSPDK()
	c.out.begin(func() { c.gate.ConnState(c.net, http.StateActive) })
	answered, e := false, &expected{}
	defer func() { // only after a panic
		if !answered {
			c.send(nil, e, func() { c.finish(x) })
		}
	}()

	err = c.receive(current, x, text, err)
	broken := c.breaks(err)
	for _, call := range x.Calls {
		call.Observer.Gone = func() bool { return time.Since(x.Arrived) > noticeAfter && c.gone() }
	}
	passOn := func() {
		if !broken && !passedOn {
			passedOn = true
			c.passOn()
		}
	}
	if x.Calls[len(x.Calls)-1].Observer.Sent = passOn; !x.LikeSPDK {
		passOn()
	}
	if len(x.Calls) == 1 { // in a batch, other calls follow
		x.Calls[0].Observer.Answered = func() { c.out.expect(e) }
	}
	c.gate.Perform(c.ctx, current, x)
	answered = true
	c.reply(x, e)
	if broken {
		if last := c.ending(err); last != nil {
			c.send(last, nil, func() {})
		}
	}
	return passedOn || broken
}

// receive takes a message through the stages that are common to its calls, decodes it strictly, and
// records its calls. If the user is refused, each request gets that error, so that the responses
// contain the requests' ids. If the message could not be read, refused is the reason.
func (c *conn) receive(current *gate.Settings, x *gate.Exchange, text []byte, refused error) error {
	c.release()
	denied := c.gate.Enter(current, x, gate.Arrival{Conn: c.net, Identify: c.identify})
	if denied == nil && refused == nil {
		denied = c.gate.Reserve(x, gate.DecodedSize*len(text))
	}
	if refused != nil || errors.Is(denied, gate.ErrGone) {
		x.NoteCalls(nil, false, cmp.Or(refused, denied))
		return cmp.Or(refused, denied)
	}
	elements, batch, err := jsonrpc.DecodeMessage(text, jsonrpc.LimitsV2605)
	if denied != nil {
		for i := range elements {
			elements[i].Err = denied
		}
	}
	x.NoteCalls(elements, batch, err)
	return cmp.Or(err, denied)
}

// reply queues the response to a message.
func (c *conn) reply(x *gate.Exchange, e *expected) {
	text := x.Parts()
	if len(text) > 0 {
		text = c.frame(text)
	}
	c.send(text, e, func() { c.finish(x) })
}

// send queues bytes for the client. If they are the response to a message, e belongs to that
// message; otherwise, e is nil. send calls done when the bytes have been written or cannot be
// written.
func (c *conn) send(text [][]byte, e *expected, done func()) {
	c.out.add(response{text, done}, e, func() { c.gate.Clients.NextPart(c.net) }, c.abort)
}

// finish releases a message's resources after its response has been written.
func (c *conn) finish(x *gate.Exchange) {
	c.out.end(func() { c.gate.ConnState(c.net, http.StateIdle) })
	c.gate.Leave(x)
	<-c.started
}

// abort ends the connection, because responses cannot be written to it.
func (c *conn) abort() {
	c.cancel()
	_ = c.net.Close()
}
