package stream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// An input buffers the text that has arrived on a connection, and splits it into messages.
type input struct {
	buffer []byte
	text   []byte // the part of buffer that message has not returned yet
	split  jsonrpc.Splitter
	began  time.Time // when the message at the beginning of text began to arrive

	reserved    int // bytes of the user's memory budget reserved for a long message
	reservedFor string
}

const (
	// firstBuffer is the size of the first buffer, in bytes. Most messages fit into it.
	firstBuffer = 4 << 10
	// keptBuffer is the maximum size, in bytes, of a buffer that is kept for the next message.
	keptBuffer = 64 << 10
)

var errNoMessage = errors.New("no JSON-RPC message")

// message removes the next message, of at most limit bytes, from the text and returns it. If the
// message has not arrived completely, it returns nil.
func (in *input) message(limit int) ([]byte, error) {
	in.text = jsonrpc.TrimSpace(in.text)
	n, err := in.split.Next(in.text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNoMessage, err)
	case n > limit, n == 0 && len(in.text) > limit:
		return nil, &http.MaxBytesError{Limit: int64(limit)}
	case n == 0 && len(in.text) > 0 && in.began.IsZero():
		in.began = time.Now()
		return nil, nil
	case n == 0:
		return nil, nil
	}
	message := in.text[:n]
	in.text, in.began = in.text[n:], time.Time{}
	return message, nil
}

// begun reports whether part of a message has arrived.
func (in *input) begun() bool { return len(in.text) > 0 }

// full reports whether the received part of a message fills the buffer.
func (in *input) full() bool { return len(in.text) > 0 && len(in.text) == len(in.buffer) }

// fill waits for more text.
func (in *input) fill(r io.Reader) error {
	switch {
	case in.full():
		grown := make([]byte, 2*len(in.buffer))
		in.text = grown[:copy(grown, in.text)]
		in.buffer = grown
	case in.buffer == nil, len(in.text) == 0 && len(in.buffer) > keptBuffer:
		in.buffer = make([]byte, firstBuffer)
		in.text = in.buffer[:0]
	default:
		in.text = in.buffer[:copy(in.buffer, in.text)]
	}
	n, err := r.Read(in.buffer[len(in.text):])
	in.text = in.buffer[:len(in.text)+n]
	if n > 0 {
		return nil
	}
	return err
}

// releaseMemory releases the memory reserved for a long message.
func (in *input) releaseMemory(g *gate.Gate) {
	g.ReleaseFor(in.reservedFor, in.reserved)
	in.reserved, in.reservedFor = 0, ""
}

type response struct {
	text [][]byte // nil if there is no response
	done func()   // called when the response has been written or cannot be written
}

// An output writes the responses on a connection. SPDK responds at the same time to calls that
// arrive together, so the output sends their responses together: if further responses are expected
// shortly, it delays the responses that are ready.
type output struct {
	write func(text []byte) error

	mu      sync.Mutex
	active  int       // messages that have begun but not ended
	ended   time.Time // when the last message ended; zero if none has ended
	replies []response
	awaited int  // messages whose responses are expected shortly
	writing bool // a goroutine is writing responses
	broken  bool // the connection can no longer be written to
	buffer  []byte
}

// begin counts a message. If no other message is active, it calls first beforehand.
func (o *output) begin(first func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.active++; o.active == 1 {
		first()
	}
}

// end ends a message. If no other message is active, it calls last afterward.
func (o *output) end(last func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.active--; o.active == 0 {
		o.ended = time.Now()
		last()
	}
}

func (o *output) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.active == 0
}

// idleSince reports whether no message has been active for at least d.
func (o *output) idleSince(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.active == 0 && time.Since(o.ended) > d
}

// An expected records whether the response to a message is expected shortly, and whether it has
// been added. Its fields are guarded by output.mu.
type expected struct{ soon, added bool }

// expect records that SPDK has responded to a call, so that the response to the message will be
// added shortly, without any slow step in between. If the response has already been added, expect
// does nothing.
func (o *output) expect(e *expected) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !e.soon && !e.added {
		e.soon = true
		o.awaited++
	}
}

// add adds a response. It returns when the response has been written, or when another goroutine
// will write it. e belongs to the message; it is nil if the text is not a response. before is
// called before each write, and failed is called if a write fails.
func (o *output) add(r response, e *expected, before, failed func()) {
	o.mu.Lock()
	if e != nil && e.soon && !e.added {
		o.awaited--
	}
	if e != nil {
		e.added = true
	}
	o.replies = append(o.replies, r)
	if o.writing {
		o.mu.Unlock()
		return
	}
	o.writing = true
	o.mu.Unlock()
	var batch []response
	for {
		o.mu.Lock()
		if len(o.replies) == 0 || o.awaited > 0 {
			o.writing = false
			o.mu.Unlock()
			return
		}
		batch, o.replies = o.replies, batch[:0]
		o.mu.Unlock()
		if !o.broken {
			before()
			if err := o.writeAll(batch); err != nil {
				o.broken = true
				failed()
			}
		}
		for i := range batch {
			batch[i].done()
			batch[i] = response{}
		}
	}
}

// directly is the minimum length, in bytes, from which a slice is written without being copied.
const directly = 32 << 10

// writeAll writes replies. Only one goroutine at a time may call it.
func (o *output) writeAll(replies []response) error {
	o.buffer = o.buffer[:0]
	flush := func() error {
		if len(o.buffer) == 0 {
			return nil
		}
		err := o.write(o.buffer)
		o.buffer = o.buffer[:0]
		return err
	}
	for _, r := range replies {
		for _, part := range r.text {
			if len(part) < directly && len(o.buffer)+len(part) <= keptBuffer {
				o.buffer = append(o.buffer, part...)
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			if len(part) < directly {
				o.buffer = append(o.buffer, part...)
			} else if err := o.write(part); err != nil {
				return err
			}
		}
	}
	return flush()
}
