package spdkrpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// writeBound is how long a write may block before the connection is closed.
	writeBound = 10 * time.Second
	// longResponse is the length in bytes above which a response's buffer is not reused.
	longResponse = 256 << 10
)

// A socketFraming implements SPDK's framing: messages follow each other without separators. It
// parses each response only once, even a listing of several megabytes, and returns results exactly
// as SPDK wrote them.
type socketFraming struct {
	conn net.Conn
	in   bounded
	dec  *jsontext.Decoder
	out  []byte
}

func newSocketFraming(c net.Conn) *socketFraming {
	// Without this buffer, the decoder would read only as much as one value needs, even if many
	// responses have arrived.
	f := &socketFraming{conn: c, in: bounded{r: bufio.NewReaderSize(c, 32<<10)}}
	f.dec = jsontext.NewDecoder(&f.in, lenient...)
	return f
}

func (f *socketFraming) write(messages [][]byte) (complete int, err error) {
	// Limit the time of a write, because a target that has stopped reading must not block all
	// callers.
	if err := f.conn.SetWriteDeadline(time.Now().Add(writeBound)); err != nil {
		return 0, err
	}
	if len(messages) == 1 {
		if _, err := f.conn.Write(messages[0]); err != nil {
			return 0, err
		}
		return 1, nil
	}
	f.out = f.out[:0]
	for _, m := range messages {
		f.out = append(f.out, m...)
	}
	n, err := f.conn.Write(f.out)
	if cap(f.out) > longResponse {
		f.out = nil
	}
	for ; complete < len(messages) && n >= len(messages[complete]); complete++ {
		n -= len(messages[complete])
	}
	return complete, err
}

var errTargetClosed = errors.New("the target closed the connection before it responded")

func (f *socketFraming) read() (message, error) {
	f.in.left = maxMessage
	m, err := splitMessage(f.dec, slices.Clone[[]byte])
	if len(m.result) > longResponse {
		f.in.putBack(f.dec.UnreadBuffer())
		f.dec = jsontext.NewDecoder(&f.in, lenient...)
	}
	if errors.Is(err, io.EOF) {
		err = errTargetClosed
	}
	return m, err
}

func (f *socketFraming) close() error { return f.conn.Close() }

// bounded is a reader that returns an error if a response is longer than any response from SPDK, so
// that another program behind the socket cannot exhaust memory.
type bounded struct {
	r     io.Reader
	left  int
	again []byte // text that the next read returns again
}

// putBack makes the next read return text.
func (b *bounded) putBack(text []byte) { b.again = slices.Concat(text, b.again) }

func (b *bounded) Read(p []byte) (int, error) {
	if len(b.again) > 0 {
		n := copy(p, b.again)
		if b.again = b.again[n:]; len(b.again) == 0 {
			b.again = nil
		}
		return n, nil
	}
	if b.left <= 0 {
		return 0, fmt.Errorf("the target's response is longer than %d MiB", maxResponse>>20)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
