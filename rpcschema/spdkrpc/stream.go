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
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/sourcegraph/jsonrpc2"
)

const (
	// writeBound is how long a write to the target may block before the connection is closed.
	writeBound = 10 * time.Second
	// longReply is the length of a reply from which its buffer is not reused.
	longReply = 256 << 10
)

// A stream sends and receives the library's messages on the socket. The library's own stream
// decodes each result several times, and a listing may have megabytes; this stream leaves a result
// as SPDK wrote it. The library holds a lock from sending to WriteObject, and reads in one
// goroutine.
type stream struct {
	conn   net.Conn
	in     bounded
	dec    *jsontext.Decoder
	stub   []byte
	out    []byte
	next   *jsonrpc2.Request // to be written
	result json.RawMessage   // of the reply read last
}

// texts go through the library with a request, which would decode and encode them again.
type texts struct{ params, result json.RawMessage }

// carry is the option of a call that has texts.
func carry(t *texts) jsonrpc2.CallOption { return jsonrpc2.ExtraField("texts", t) }

func textsOf(req *jsonrpc2.Request) *texts { return req.ExtraFields[0].Value.(*texts) }

func newStream(c net.Conn) *stream {
	// By itself, the decoder reads only as much as one value needs, although many replies may have
	// arrived.
	s := &stream{conn: c, in: bounded{r: bufio.NewReaderSize(c, 32<<10)}}
	s.dec = jsontext.NewDecoder(&s.in, lenient...)
	return s
}

// lenient holds the options to decode SPDK's replies: names may contain any bytes.
var lenient = []jsontext.Options{jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)}

// sending notes the request that WriteObject will write.
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
	if params := textsOf(s.next).params; params != nil {
		s.out = append(append(s.out, `,"params":`...), params...)
	}
	s.out = append(s.out, '}')
	// A target that no longer reads must not block all callers.
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeBound)); err != nil {
		return err
	}
	_, err = s.conn.Write(s.out)
	return err
}

// ReadObject returns the next reply to the library, without its result.
func (s *stream) ReadObject(v any) error {
	s.in.left = maxReply + 4096 // with the members besides the result
	reply, err := splitReply(s.dec, slices.Clone[[]byte])
	if err != nil {
		return err
	}
	s.result = reply.result
	s.stub = append(append(s.stub[:0], `{"id":`...), reply.id...)
	if reply.failure == nil {
		s.stub = append(s.stub, `,"result":null}`...)
	} else {
		s.stub = append(append(append(s.stub, `,"error":`...), reply.failure...), '}')
	}
	if len(reply.result) > longReply {
		s.in.putBack(s.dec.UnreadBuffer())
		s.dec = jsontext.NewDecoder(&s.in, lenient...)
	}
	return v.(json.Unmarshaler).UnmarshalJSON(s.stub)
}

// received hands the result to the call.
func (s *stream) received(req *jsonrpc2.Request, _ *jsonrpc2.Response) {
	if req != nil { // nil: its caller has given up
		textsOf(req).result = s.result
	}
}

func (s *stream) Close() error { return s.conn.Close() }

// replyParts are slices of a reply's text.
type replyParts struct{ id, result, failure []byte }

// partsOf finds the members of a reply, which must be all of the text. They are parts of the text.
func partsOf(text []byte) (replyParts, error) {
	dec := splitters.Get().(*jsontext.Decoder)
	dec.Reset(bytes.NewBuffer(text), lenient...)
	defer func() {
		dec.Reset(new(bytes.Buffer)) // keeps no reply, which may contain secrets
		splitters.Put(dec)
	}()
	parts, err := splitReply(dec, func(part []byte) []byte { return part })
	if err != nil {
		return parts, err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return parts, errors.New("the reply is not one JSON value")
	}
	return parts, nil
}

// splitters keep the memory that tracks names and nesting.
var splitters = sync.Pool{New: func() any { return jsontext.NewDecoder(new(bytes.Buffer)) }}

// splitReply reads a reply. keep returns a part for as long as it is needed: dec uses its memory
// again, unless it has the whole text.
func splitReply(dec *jsontext.Decoder, keep func(part []byte) []byte) (parts replyParts, err error) {
	t, err := dec.ReadToken()
	if err != nil {
		return parts, err
	}
	if t.Kind() != '{' {
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
			*part = keep(value)
		}
	}
	if _, err := dec.ReadToken(); err != nil { // the closing bracket
		return parts, fmt.Errorf("the target's reply: %w", err)
	}
	if parts.id == nil || (parts.result == nil) == (parts.failure == nil) {
		return parts, errors.New("the target's reply has no id, or not one of result and error")
	}
	return parts, nil
}

// bounded fails if a reply is longer than SPDK's replies can be, so that no program behind the
// socket can exhaust the memory.
type bounded struct {
	r     io.Reader
	left  int
	again []byte // text that was read and put back
}

// putBack puts text back, to be read again first.
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
