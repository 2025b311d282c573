package spdkrpc

import (
	"errors"
	"sync"
	"time"
)

// A framing writes and reads the messages on one connection. At most one goroutine may write at a
// time, and at most one may read. close may be called at any time, and ends both operations.
type framing interface {
	// write writes messages, and pending pings and pongs, in as few writes as possible. It returns
	// how many messages were written completely; the peer cannot have executed the rest.
	write(messages [][]byte) (complete int, err error)
	// read returns the next message.
	read() (message, error)
	close() error
}

// A prober is a framing that can send pings and detect whether the peer is still sending data.
type prober interface {
	// ping prepares a ping, which the next write sends.
	ping() error
	// heard returns a number that changes whenever data is received.
	heard() uint64
}

// A stream is one connection with many calls in flight, which are matched with their responses by
// id. Streams are used on the target's socket and over WebSocket; only the framing differs. A
// stream is safe for concurrent use.
//
// Calls that are started while another goroutine is writing are sent together in the next write.
type stream struct {
	framing framing
	prober  prober        // nil if silence does not mean that the connection is lost
	beat    time.Duration // time between two ticks
	timer   *time.Timer   // guarded by mu; nil means no ticks
	limit   int           // maximum number of calls without a response; 0 means unlimited
	ended   chan struct{} // closed when the connection has closed

	mu    sync.Mutex
	state inFlight // modified only by the method update

	texts [][]byte // used only by the writing goroutine
}

// inFlight is the state of a stream.
type inFlight struct {
	calls   map[uint64]*streamCall // calls without a response
	awaited int                    // number of calls that a caller is waiting for
	queue   []*streamCall          // calls to be written
	batch   []*streamCall          // calls being written; the memory is reused for the next queue
	control bool                   // a ping or a pong must be written
	writing bool                   // a goroutine is writing, and will write the queue
	// the stream accepts no further calls, and ends when no call is awaited
	leaving  bool
	draining bool  // the peer has announced that it will close the connection
	answered bool  // a response has arrived
	err      error // why the connection has closed, or is about to close
	closed   bool

	heard   uint64 // result of prober.heard at the last tick
	silence int    // number of ticks without received data while calls are awaited
	unused  int    // number of ticks without an awaited call
}

type streamCall struct {
	id   uint64
	text []byte
	done chan struct{} // closed when response or err is set

	answered func() // called before done is closed if there is a response; may be nil

	response message
	err      error // no response will arrive
	sent     bool  // if err is set, whether the peer may have executed the call

	// The following fields are guarded by stream.mu.
	progress  progress
	abandoned bool // the caller is no longer waiting
}

// A progress states how far the sending of a call has advanced.
type progress int

const (
	queued  progress = iota // not written yet, so the call can be withdrawn
	writing                 // only the writing goroutine knows whether the call was written
	written
)

var (
	errFull    = errors.New("too many calls are in flight on this connection")
	errLeaving = errors.New("the connection accepts no further calls")
	errSilent  = errors.New("the peer sends nothing, not even a response to a ping")
)

// newStream returns a stream on a connection. The caller must start run in a goroutine.
func newStream(f framing, limit int, beat time.Duration) *stream {
	s := &stream{framing: f, limit: limit, beat: beat, ended: make(chan struct{})}
	s.state.calls = map[uint64]*streamCall{}
	s.prober, _ = f.(prober)
	if beat > 0 && s.prober != nil {
		s.update(func(*inFlight) { s.timer = time.AfterFunc(beat, s.tick) })
	}
	return s
}

// update is the only function that modifies the state. It closes the connection if change has set
// err, or if the stream is leaving and no call is awaited.
func (s *stream) update(change func(*inFlight)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.state
	change(f)
	if f.leaving && f.awaited == 0 && f.err == nil {
		f.err = errLeaving
	}
	if f.err == nil || f.closed {
		return
	}
	f.closed, f.queue = true, nil
	for _, c := range f.calls {
		if c.progress != writing { // the writing goroutine ends calls that are being written
			f.fail(c, f.err)
		}
	}
	close(s.ended)
	go func() { _ = s.framing.close() }() // close may write a last message
}

// fail ends a call that will get no response.
func (f *inFlight) fail(c *streamCall, err error) {
	f.remove(c)
	c.err, c.sent = err, c.progress == written
	close(c.done)
}

func (f *inFlight) remove(c *streamCall) {
	delete(f.calls, c.id)
	if !c.abandoned {
		f.awaited--
	}
}

// newCall returns a call with an id that no other call on the stream has.
func newCall(id uint64, text []byte) *streamCall {
	return &streamCall{id: id, text: text, done: make(chan struct{})}
}

// start queues a call, and writes the queue unless another goroutine is writing. If start returns
// an error, the call will not be sent. Otherwise, done is closed when the response has arrived or
// can no longer arrive.
func (s *stream) start(c *streamCall) (err error) {
	write := false
	s.update(func(f *inFlight) {
		switch {
		case f.err != nil:
			err = f.err
			return
		case f.leaving:
			err = errLeaving
			return
		case s.limit > 0 && len(f.calls) >= s.limit:
			err = errFull
			return
		}
		f.calls[c.id] = c
		f.awaited++
		f.unused = 0
		f.queue = append(f.queue, c)
		write, f.writing = !f.writing, true
	})
	if write {
		s.write()
	}
	return err
}

// write writes the queue. Calls queued in the meantime are left to another goroutine.
func (s *stream) write() {
	if s.writeOnce() {
		go func() {
			for s.writeOnce() {
			}
		}()
	}
}

// writeOnce writes the queue, and reports whether more calls were queued in the meantime.
func (s *stream) writeOnce() (more bool) {
	var batch []*streamCall
	s.update(func(f *inFlight) {
		batch = f.queue
		f.queue, f.batch, f.control = f.batch[:0], batch, false
		for _, c := range batch {
			c.progress = writing
		}
	})
	s.texts = s.texts[:0]
	for _, c := range batch {
		s.texts = append(s.texts, c.text)
	}
	complete, err := s.framing.write(s.texts)
	clear(s.texts)
	s.update(func(f *inFlight) {
		for i, c := range batch {
			switch {
			case f.calls[c.id] != c: // the response has already arrived
			case i >= complete:
				f.fail(c, err)
			default:
				c.progress = written
				if f.closed {
					f.fail(c, f.err)
				}
			}
		}
		clear(batch)
		if err != nil && f.err == nil {
			f.err = err
		}
		more = f.err == nil && (len(f.queue) > 0 || f.control)
		f.writing = more
	})
	return more
}

// flush writes pending pings and pongs, without blocking.
func (s *stream) flush() {
	write := false
	s.update(func(f *inFlight) {
		f.control = true
		write, f.writing = !f.writing && f.err == nil, true
	})
	if write {
		go s.write()
	}
}

// run reads until the connection closes.
func (s *stream) run() {
	for {
		m, err := s.framing.read()
		if err != nil {
			s.end(err)
			return
		}
		var replied *streamCall
		s.update(func(f *inFlight) {
			if m.method != "" {
				f.draining = f.draining || m.method == drainingMethod
				f.leaving = f.leaving || f.draining
				return
			}
			c := f.calls[m.id]
			// The peer cannot have received this id, or this is a second response.
			if c == nil || c.progress == queued {
				return
			}
			f.answered = true
			f.remove(c)
			c.response = m
			replied = c
		})
		if replied == nil {
			continue
		}
		if replied.answered != nil {
			replied.answered()
		}
		close(replied.done)
	}
}

// drainingMethod is the method, as JSON text, of the notification that a proxy sends before it
// stops, and before it closes an idle connection.
const drainingMethod = `"spdkgate.draining"`

// giveUp is called when the caller stops waiting. A call that has not been written is withdrawn and
// ends with err. A call that may have been written stays in flight, and its response may still be
// read.
func (s *stream) giveUp(c *streamCall, err error) {
	s.update(func(f *inFlight) {
		if f.calls[c.id] != c {
			return
		}
		if c.progress == queued {
			for i, other := range f.queue {
				if other == c {
					f.queue = append(f.queue[:i], f.queue[i+1:]...)
					break
				}
			}
			f.fail(c, err)
			return
		}
		if !c.abandoned {
			c.abandoned = true
			f.awaited--
		}
	})
}

// leave makes the stream refuse further calls, and makes it end as soon as no call is awaited.
func (s *stream) leave() { s.update(func(f *inFlight) { f.leaving = true }) }

// end closes the connection.
func (s *stream) end(err error) {
	s.update(func(f *inFlight) {
		if f.err == nil {
			f.err = err
		}
	})
}

// isDraining reports whether the peer has announced that it will close the connection.
func (s *stream) isDraining() (draining bool) {
	s.update(func(f *inFlight) { draining = f.draining })
	return draining
}

// outcome returns the reason why the connection closed, and whether it ever delivered a response.
func (s *stream) outcome() (err error, answered bool) {
	s.update(func(f *inFlight) { err, answered = f.err, f.answered })
	return err, answered
}

// The stream sends a ping after pingAfter ticks without received data, and treats the connection as
// lost after lostAfter ticks. After leaveAfter ticks without a call, it closes the connection
// before the proxy does. This prevents the stream from sending a call just as the proxy closes the
// connection.
const (
	pingAfter  = 3
	lostAfter  = 6
	leaveAfter = 12
)

// tick checks whether data was received while calls are awaited, and closes the stream if no call
// has been awaited for a long time.
func (s *stream) tick() {
	heard := s.prober.heard()
	ping := false
	s.update(func(f *inFlight) {
		if f.err != nil {
			return
		}
		if s.timer != nil {
			s.timer.Reset(s.beat)
		}
		if f.awaited == 0 {
			f.silence = 0
			f.unused++
			f.leaving = f.leaving || f.unused >= leaveAfter
			return
		}
		f.unused = 0
		f.silence++
		if heard != f.heard {
			f.heard, f.silence = heard, 0
		}
		ping = f.silence == pingAfter
		if f.silence == lostAfter {
			f.err = errSilent
		}
	})
	if ping && s.prober.ping() == nil {
		s.flush()
	}
}
