package spdkrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
)

const (
	// writeBound is how long a target may refuse to read before its connection is
	// given up.
	writeBound = 10 * time.Second
	// longReply is where the buffer that a reply took is not worth keeping.
	longReply = 256 << 10
)

// A stream is how the library's messages travel on the socket. The library's
// own stream decodes each result several times over, and a target's listing has
// megabytes; here a result stays as SPDK wrote it. The library holds a lock from
// sending to WriteObject, and reads in one goroutine.
type stream struct {
	conn   net.Conn
	in     bounded
	dec    *jsontext.Decoder
	parts  *jsontext.Decoder // within one reply
	stub   []byte
	out    []byte
	next   *jsonrpc2.Request // to be written
	result json.RawMessage   // of the reply read last
}

func newStream(c net.Conn) *stream {
	// Of its own the decoder reads what one value needs, and many replies come at once.
	s := &stream{conn: c, in: bounded{r: bufio.NewReaderSize(c, 32<<10)}}
	s.dec = jsontext.NewDecoder(&s.in, lenient...)
	s.parts = jsontext.NewDecoder(new(bytes.Buffer), lenient...)
	return s
}

// lenient is what decoding SPDK's words has to be: names may hold any bytes.
var lenient = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

// sending notes what WriteObject will be called for.
func (s *stream) sending(req *jsonrpc2.Request, _ *jsonrpc2.Response) { s.next = req }

// WriteObject writes the request in one piece.
func (s *stream) WriteObject(any) error {
	if s.next == nil {
		return errors.New("only requests can be written")
	}
	s.out = append(s.out[:0], `{"jsonrpc":"2.0","id":`...)
	s.out = strconv.AppendUint(s.out, s.next.ID.Num, 10)
	s.out = append(s.out, `,"method":`...)
	var err error
	if s.out, err = jsontext.AppendQuote(s.out, s.next.Method); err != nil {
		return err
	}
	if s.next.Params != nil {
		s.out = append(append(s.out, `,"params":`...), *s.next.Params...)
	}
	s.out = append(s.out, '}')
	// A target that no longer reads must not block all callers.
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeBound)); err != nil {
		return err
	}
	_, err = s.conn.Write(s.out)
	return err
}

// ReadObject gives the library the next reply, without its result.
func (s *stream) ReadObject(v any) error {
	s.in.left = maxReply + 4096 // with what stands around the result
	text, err := s.dec.ReadValue()
	if err != nil {
		return err
	}
	s.parts.Reset(bytes.NewBuffer(text), lenient...)
	reply, err := splitReply(s.parts)
	if err != nil {
		return err
	}
	s.result = slices.Clone(reply.result)
	stub := text
	if reply.failure == nil {
		s.stub = append(append(append(s.stub[:0], `{"id":`...), reply.id...), `,"result":null}`...)
		stub = s.stub
	}
	err = v.(json.Unmarshaler).UnmarshalJSON(stub)
	if len(text) > longReply {
		s.in.putBack(s.dec.UnreadBuffer())
		s.dec = jsontext.NewDecoder(&s.in, lenient...)
	}
	return err
}

// received gives the library's reply its result.
func (s *stream) received(_ *jsonrpc2.Request, reply *jsonrpc2.Response) {
	if reply != nil && reply.Error == nil {
		result := s.result // of this reply: s.result will be that of the next
		reply.Result = &result
	}
}

func (s *stream) Close() error { return s.conn.Close() }

// replyParts are slices of a reply's text.
type replyParts struct{ id, result, failure []byte }

// splitReply finds the members of a reply, which is sound JSON.
func splitReply(dec *jsontext.Decoder) (parts replyParts, err error) {
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '{' {
		return parts, errors.New("the target's reply is not an object")
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return parts, fmt.Errorf("the target's reply: %w", err)
		}
		var part *[]byte
		switch name.String() {
		case "id":
			part = &parts.id
		case "result":
			part = &parts.result
		case "error":
			part = &parts.failure
		}
		value, err := dec.ReadValue()
		if err != nil {
			return parts, fmt.Errorf("the target's reply: %w", err)
		}
		if part != nil {
			*part = value
		}
	}
	if parts.id == nil || (parts.result == nil) == (parts.failure == nil) {
		return parts, errors.New("the target's reply has no id, or not one of result and error")
	}
	return parts, nil
}

// bounded fails when a reply is longer than SPDK's can be: memory has a bound,
// any program behind the socket.
type bounded struct {
	r     io.Reader
	left  int
	again []byte // was read and put back
}

// putBack has text read again, before what is read next.
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
		return 0, fmt.Errorf("the target's reply is longer than %d MiB", maxReply>>20)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
