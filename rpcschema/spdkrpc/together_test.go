package spdkrpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A batchProxy makes the calls of batches at once, or says that it does.
type batchProxy struct {
	mu     sync.Mutex
	single []call
	batch  func(w http.ResponseWriter, calls []call)
}

func (p *batchProxy) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(batchHeader, r.Header.Get(batchHeader))
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if strings.HasPrefix(string(text), "[") {
		var calls []call
		if json.Unmarshal(text, &calls) == nil {
			p.batch(w, calls)
		}
		return
	}
	var c call
	_ = json.Unmarshal(text, &c)
	p.mu.Lock()
	p.single = append(p.single, c)
	p.mu.Unlock()
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":%q}`, c.ID, c.Method)
}

// startTogether makes calls that are certain to go out together, as if each were made before any other goroutine has run.
// It returns their results and errors.
func startTogether(t *testing.T, h *HTTPS, ctxs ...context.Context) (results []string, errs []error, ended []chan struct{}) {
	t.Helper()
	require.NoError(t, h.Call(t.Context(), "learn", nil, nil))
	require.True(t, h.gathering.offered.Load())
	g := &h.gathering
	g.mu.Lock()
	g.led = true // nobody sends yet
	g.mu.Unlock()
	results, errs = make([]string, len(ctxs)), make([]error, len(ctxs))
	for i, ctx := range ctxs {
		done := make(chan struct{})
		ended = append(ended, done)
		go func() {
			defer close(done)
			errs[i] = h.Call(ctx, fmt.Sprint("m", i), nil, &results[i])
		}()
	}
	for { // until all wait
		g.mu.Lock()
		if len(g.waiting) == len(ctxs) {
			break
		}
		g.mu.Unlock()
	}
	slices.SortFunc(g.waiting, func(a, b *gathered) int {
		return strings.Compare(string(a.body[len(a.body)-4:]), string(b.body[len(b.body)-4:]))
	})
	requests := split(g.waiting)
	g.waiting, g.led = nil, false
	g.mu.Unlock()
	require.Len(t, requests, 1)
	go h.send(requests[0])
	return results, errs, ended
}

func waitFor(ended []chan struct{}) {
	for _, e := range ended {
		<-e
	}
}

func TestCallsGoOutTogether(t *testing.T) {
	p := &batchProxy{}
	h := proxied(t, p.serve)
	p.batch = func(w http.ResponseWriter, calls []call) {
		answers := []string{
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"third"}`, calls[2].ID),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-19,"message":"none"}}`, calls[0].ID),
			`{"id":99999,"result":"nobody's"}`,
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":[1]}`, calls[3].ID),
		}
		fmt.Fprint(w, "["+strings.Join(answers, ",")+"]\n")
	}
	ctx := t.Context()
	results, errs, ended := startTogether(t, h, ctx, ctx, ctx, ctx)
	waitFor(ended)
	require.ErrorIs(t, errs[0], NoSuchDevice)
	require.ErrorIs(t, errs[1], OutcomeUnknown, "it got no answer")
	require.NoError(t, errs[2])
	assert.Equal(t, "third", results[2])
	require.ErrorIs(t, errs[3], Failed)
	assert.Len(t, p.single, 1)
}

// Each call has its answer as soon as the proxy sends it, and its own deadline.
func TestCallsOfABatchDoNotWaitForEachOther(t *testing.T) {
	p := &batchProxy{}
	h := proxied(t, p.serve)
	goOn := make(chan struct{})
	p.batch = func(w http.ResponseWriter, calls []call) {
		fmt.Fprintf(w, `[{"id":%d,"result":"first"}`, calls[0].ID)
		_ = http.NewResponseController(w).Flush()
		<-goOn
		fmt.Fprintf(w, `,{"id":%d,"result":"second"}]`, calls[1].ID)
	}
	ctx, leave := context.WithCancel(t.Context())
	results, errs, ended := startTogether(t, h, t.Context(), t.Context(), ctx)
	<-ended[0] // while the second call waits
	assert.Equal(t, "first", results[0])
	leave()
	<-ended[2]
	close(goOn)
	<-ended[1]
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	assert.Equal(t, "second", results[1])
	require.ErrorIs(t, errs[2], OutcomeUnknown)
}

// A batch that is refused as a whole counts for each of its calls. If it is only too large, each call is sent alone.
func TestBatchesThatAreRefused(t *testing.T) {
	for status, kind := range map[int]Kind{401: Denied, 429: Unreachable, 503: Unreachable, 502: OutcomeUnknown, 413: ""} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			p := &batchProxy{batch: func(w http.ResponseWriter, _ []call) { w.WriteHeader(status) }}
			h := proxied(t, p.serve)
			results, errs, ended := startTogether(t, h, t.Context(), t.Context())
			waitFor(ended)
			for i, err := range errs {
				assert.Equal(t, kind, KindOf(err), err)
				if kind == "" {
					assert.Equal(t, fmt.Sprint("m", i), results[i])
				}
			}
		})
	}
}

func TestBatchesThatAreLost(t *testing.T) {
	p := &batchProxy{batch: func(w http.ResponseWriter, calls []call) {
		fmt.Fprintf(w, `[{"id":%d,"result":"first"}`, calls[0].ID)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}}
	h := proxied(t, p.serve)
	results, errs, ended := startTogether(t, h, t.Context(), t.Context())
	waitFor(ended)
	require.NoError(t, errs[0])
	assert.Equal(t, "first", results[0])
	require.ErrorIs(t, errs[1], OutcomeUnknown)

	p.batch = func(w http.ResponseWriter, calls []call) { fmt.Fprint(w, `{"id":1,"result":true}`) }
	_, errs, ended = startTogether(t, h, t.Context(), t.Context())
	waitFor(ended)
	require.ErrorIs(t, errs[0], OutcomeUnknown, "not an array")
}

// The calls of a request that cannot be sent were certainly not executed.
func TestBatchesThatAreNotSent(t *testing.T) {
	p := &batchProxy{}
	h := proxied(t, p.serve)
	require.NoError(t, h.Call(t.Context(), "learn", nil, nil))
	h.transport.CloseIdleConnections()
	h.url.Host = "127.0.0.1:1"
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { assert.Equal(t, Unreachable, KindOf(h.Call(t.Context(), "m", nil, nil))) })
	}
	calls.Wait()
}

// If a caller leaves before its request was sent, its call is never sent, and the others are sent alone.
func TestCallerLeavesBeforeItsBatchIsSent(t *testing.T) {
	p := &batchProxy{batch: func(http.ResponseWriter, []call) { assert.Fail(t, "the batch was sent") }}
	h := proxied(t, p.serve)
	g := &h.gathering
	calls := []*gathered{{id: 1, body: []byte(`{"id":1,"method":"leaves"}`), answer: make(chan gatheredAnswer, 1)}, {id: 2, body: []byte(`{"id":2,"method":"stays"}`), answer: make(chan gatheredAnswer, 1)}}
	requests := split(calls)
	assert.Equal(t, Unreachable, g.leave(calls[0]))
	h.send(requests[0])
	assert.True(t, (<-calls[1].answer).again)
	_, err := (&togetherBody{requests[0], nil}).Read(nil)
	require.ErrorIs(t, err, errWithdrawn)

	waiting := &gathered{}
	g.waiting = []*gathered{waiting}
	assert.Equal(t, Unreachable, g.leave(waiting))
	assert.Empty(t, g.waiting)
}

// The same while the request waits for a connection.
func TestCallerLeavesWhileItsBatchConnects(t *testing.T) {
	p := &batchProxy{batch: func(http.ResponseWriter, []call) { assert.Fail(t, "the batch was sent") }}
	h := proxied(t, p.serve)
	calls := []*gathered{{id: 1, body: []byte(`{"id":1,"method":"leaves"}`), answer: make(chan gatheredAnswer, 1)}, {id: 2, body: []byte(`{"id":2,"method":"stays"}`), answer: make(chan gatheredAnswer, 1)}}
	requests := split(calls)
	h.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		assert.Equal(t, Unreachable, h.gathering.leave(calls[0]))
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	h.send(requests[0])
	assert.Equal(t, gatheredAnswer{again: true}, <-calls[1].answer)
}

// A request ends when nobody waits for an answer that is missing.
func TestBatchEndsWithItsLastCaller(t *testing.T) {
	p := &batchProxy{}
	h := proxied(t, p.serve)
	closed, began := make(chan struct{}), make(chan struct{})
	p.batch = func(w http.ResponseWriter, calls []call) {
		fmt.Fprintf(w, `[{"id":%d,"result":"first"}`, calls[0].ID)
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		close(began)
		for rc.Flush() == nil { // until the connection is closed
			if _, err := w.Write([]byte(" ")); err != nil {
				break
			}
		}
		close(closed)
	}
	ctx, leave := context.WithCancel(t.Context())
	_, errs, ended := startTogether(t, h, t.Context(), ctx)
	<-began
	leave()
	waitFor(ended)
	<-closed
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], OutcomeUnknown)
	require.ErrorIs(t, errs[1], context.Canceled)
}

// A proxy that does not offer it gets each call alone, and so does each long call.
func TestCallsThatGoOutAlone(t *testing.T) {
	var mu sync.Mutex
	served := 0
	h := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		var c call
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		mu.Lock()
		served++
		mu.Unlock()
		fmt.Fprintf(w, `{"id":%d,"result":true}`, c.ID)
	})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() { assert.NoError(t, h.Call(t.Context(), "m", nil, nil)) })
	}
	calls.Wait()
	assert.Equal(t, 20, served)

	h.gathering.offered.Store(true)
	assert.False(t, h.gathering.accepts(make([]byte, maxGathered+1)))
	assert.True(t, h.gathering.accepts(make([]byte, maxGathered)))
}

func TestSplit(t *testing.T) {
	var calls []*gathered
	for range 2*maxTogether + 1 {
		calls = append(calls, &gathered{body: []byte("{}")})
	}
	var lengths []int
	for _, r := range split(calls) {
		lengths = append(lengths, len(r.calls))
	}
	assert.Equal(t, []int{maxTogether, maxTogether, 1}, lengths)
	calls = nil
	for range 2*maxTogetherBytes/maxGathered + 1 {
		calls = append(calls, &gathered{body: make([]byte, maxGathered)})
	}
	assert.Len(t, split(calls), 3)
}
