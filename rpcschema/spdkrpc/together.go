package spdkrpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
)

// Calls that are made at the same time go out together, in one request: that takes less processor time on both sides. Each
// keeps its own deadline and its own answer: spdk-proxy makes the calls of such a batch at once, and sends each answer when
// it has it. Other proxies do not say that they do so, and get each call alone.

const (
	batchHeader     = "Spdkgate-Batch"
	concurrentBatch = "concurrent"

	// Limits of calls that go out together. The proxy accepts 128 calls in 256 KiB, unless it is configured for less.
	maxTogether      = 64
	maxTogetherBytes = 64 << 10
	// maxGathered is the length of a call that may go out with others.
	maxGathered = 4 << 10
)

// A gathering holds calls that wait to be sent together, for as long as it takes other goroutines to make theirs.
type gathering struct {
	offered atomic.Bool // by the proxy, in its last answer
	mu      sync.Mutex
	waiting []*gathered
	led     bool // one of the waiting calls is about to send them all
}

// accepts reports whether a call may go out with others.
func (g *gathering) accepts(body []byte) bool { return g.offered.Load() && len(body) <= maxGathered }

// learn notes whether the proxy makes the calls of a batch at once. It says so only to users whom it has authenticated.
func (g *gathering) learn(resp *http.Response) {
	if offered := resp.Header.Get(batchHeader) == concurrentBatch; offered != g.offered.Load() {
		g.offered.Store(offered)
	}
}

// A gathered is a call that goes out with others.
type gathered struct {
	id     uint64
	body   []byte
	answer chan gatheredAnswer // with room for one

	// Guarded by gathering.mu:
	in    *together // nil: not sent yet
	ended bool      // it has its answer, or its caller has left
	known bool      // its answer, although its caller may have left
}

// A gatheredAnswer is the answer to one call, or why there is none.
type gatheredAnswer struct {
	parts  replyParts // of an answer of its own
	status int        // otherwise: of the answer to the request
	text   []byte
	kind   Kind  // of err
	err    error // nil: there is an answer
	again  bool  // the call was certainly not executed, and has to be sent alone
}

// A together is one request with several calls.
type together struct {
	calls []*gathered
	sent  atomic.Int32 // notSent, sent or withdrawn

	// Guarded by gathering.mu:
	running    int // calls that have not ended
	unanswered int // calls without an answer
	cancel     context.CancelFunc
}

// The states of a request. Until its body is read to be written, the proxy cannot execute any of its calls.
const (
	notSent int32 = iota
	sent
	withdrawn
)

var errWithdrawn = errors.New("a caller left before the calls were sent")

// callTogether sends a call with all others that are made at the same time. The first of them waits until all goroutines
// that can run have run, and sends what there is then.
func (h *HTTPS) callTogether(ctx context.Context, method string, id uint64, body []byte, result any) error {
	g := &h.gathering
	c := &gathered{id: id, body: body, answer: make(chan gatheredAnswer, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, c)
	leads := !g.led
	g.led = true
	g.mu.Unlock()
	if leads {
		runtime.Gosched()
		g.mu.Lock()
		calls := g.waiting
		g.waiting, g.led = nil, false
		if len(calls) == 1 {
			g.mu.Unlock()
			return h.callAlone(ctx, method, id, body, result)
		}
		requests := split(calls)
		g.mu.Unlock()
		for _, t := range requests {
			go h.send(t)
		}
	}
	select {
	case a := <-c.answer:
		switch {
		case a.again:
			return h.callAlone(ctx, method, id, body, result)
		case a.err != nil:
			return &Error{Method: method, Kind: a.kind, Err: a.err}
		case a.parts.id != nil:
			return replied(method, id, http.StatusOK, a.parts, result)
		}
		return h.answer(method, id, a.status, a.text, result)
	case <-ctx.Done():
		return &Error{Method: method, Kind: g.leave(c), Err: ctx.Err()}
	}
}

// split distributes calls to requests.
func split(calls []*gathered) (requests []*together) {
	length := 0
	for _, c := range calls {
		if len(requests) == 0 || len(requests[len(requests)-1].calls) == maxTogether || length+len(c.body) > maxTogetherBytes {
			requests, length = append(requests, &together{}), 0
		}
		t := requests[len(requests)-1]
		t.calls = append(t.calls, c)
		t.running++
		t.unanswered++
		c.in = t
		length += len(c.body)
	}
	for _, t := range requests {
		t.cancel = func() {} // until send
	}
	return requests
}

// leave ends the wait of a call, and returns what is known of it. If its request was not sent yet, it never will be; the
// other calls are sent alone.
func (g *gathering) leave(c *gathered) Kind {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.in == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(other *gathered) bool { return other == c })
		return Unreachable
	}
	g.end(c)
	if c.in.sent.CompareAndSwap(notSent, withdrawn) {
		c.in.cancel()
	}
	if c.in.sent.Load() == withdrawn {
		return Unreachable
	}
	return OutcomeUnknown
}

// end notes that a call has ended. If nobody waits any more for the answers that are missing, the request ends.
func (g *gathering) end(c *gathered) {
	if c.ended {
		return
	}
	c.ended = true
	if c.in.running--; c.in.running == 0 && c.in.unanswered > 0 {
		c.in.cancel()
	}
}

// deliver passes an answer on to the call's caller, if that still waits.
func (g *gathering) deliver(c *gathered, a gatheredAnswer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.known {
		return
	}
	c.known = true
	c.in.unanswered--
	if !c.ended {
		c.answer <- a
		g.end(c)
	}
}

// deliverAll passes an answer on to all calls that have none yet.
func (g *gathering) deliverAll(t *together, a gatheredAnswer) {
	for _, c := range t.calls {
		g.deliver(c, a)
	}
}

// send sends the calls, and delivers their answers.
func (h *HTTPS) send(t *together) {
	g := &h.gathering
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g.mu.Lock()
	t.cancel = cancel
	abandoned := t.running == 0
	g.mu.Unlock()
	if abandoned || t.sent.Load() == withdrawn {
		g.deliverAll(t, gatheredAnswer{again: true})
		return
	}
	header, err := h.who.header()
	if err != nil {
		g.deliverAll(t, gatheredAnswer{kind: Unreachable, err: err})
		return
	}
	body := []byte("[")
	for i, c := range t.calls {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, c.body...)
	}
	body = append(body, ']')
	newBody := func() io.ReadCloser {
		t.sent.CompareAndSwap(sent, notSent) // net/http repeats only what the proxy cannot have read
		return &togetherBody{t, bytes.NewReader(body)}
	}
	resp, err := h.transport.RoundTrip(h.request(ctx, header, newBody, len(body)))
	if err != nil {
		switch t.sent.Load() {
		case withdrawn:
			g.deliverAll(t, gatheredAnswer{again: true})
		case notSent:
			g.deliverAll(t, gatheredAnswer{kind: Unreachable, err: err})
		default:
			g.deliverAll(t, gatheredAnswer{kind: OutcomeUnknown, err: err})
		}
		return
	}
	defer func() { _ = resp.Body.Close() }()
	g.learn(resp)
	if resp.StatusCode != http.StatusOK {
		h.refused(t, resp)
		return
	}
	g.deliverAll(t, gatheredAnswer{kind: OutcomeUnknown, err: g.receive(t, resp.Body)})
}

// A togetherBody is the text of a request. Reading it is the moment from which the calls may be executed.
type togetherBody struct {
	t *together
	*bytes.Reader
}

func (b *togetherBody) Read(p []byte) (int, error) {
	if b.t.sent.CompareAndSwap(notSent, sent) || b.t.sent.Load() == sent {
		return b.Reader.Read(p)
	}
	return 0, errWithdrawn
}

// WriteTo would let net/http take the text without Read.
func (b *togetherBody) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b})
}

func (b *togetherBody) Close() error { return nil }

// refused delivers the one answer to a request that was refused as a whole.
func (h *HTTPS) refused(t *together, resp *http.Response) {
	defer h.noteStatus(resp.StatusCode)
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	switch {
	case err != nil:
		h.gathering.deliverAll(t, gatheredAnswer{kind: OutcomeUnknown, err: err})
	case resp.StatusCode == http.StatusRequestEntityTooLarge: // the calls are too large only together
		h.gathering.deliverAll(t, gatheredAnswer{again: true})
	default:
		h.gathering.deliverAll(t, gatheredAnswer{status: resp.StatusCode, text: text})
	}
}

// receive delivers answers as they come, in any order. It returns why calls that have none will get none.
func (g *gathering) receive(t *together, from io.Reader) error {
	in := &bounded{r: from, left: maxReply}
	dec := jsontext.NewDecoder(in, lenient...)
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '[' {
		return errors.New("the proxy's answer to a batch is not an array")
	}
	for dec.PeekKind() != ']' {
		text, err := dec.ReadValue()
		if err != nil {
			return err
		}
		in.left = maxReply
		parts, err := partsOf(slices.Clone(text)) // the decoder uses its memory again
		if err != nil {
			continue // its call has no answer
		}
		if c := t.find(parts.id); c != nil {
			g.deliver(c, gatheredAnswer{parts: parts})
		}
	}
	_, _ = dec.ReadToken()
	_, _ = dec.ReadToken() // up to the end, so that the connection can be used again
	return errors.New("the proxy has not answered this call of a batch")
}

// find returns the call with an id.
func (t *together) find(text []byte) *gathered {
	id, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return nil
	}
	if i := slices.IndexFunc(t.calls, func(c *gathered) bool { return c.id == id }); i >= 0 {
		return t.calls[i]
	}
	return nil
}
