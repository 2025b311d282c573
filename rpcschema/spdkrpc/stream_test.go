package spdkrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A script is a framing that a test controls.
type script struct {
	writes    chan [][]byte    // messages that the stream writes
	results   chan writeResult // results that write returns
	responses chan message     // responses to read; closing the channel ends the connection
	closed    chan struct{}
	pings     int
	sounds    uint64
}

type writeResult struct {
	complete int
	err      error
}

func newScript() *script {
	return &script{writes: make(chan [][]byte), results: make(chan writeResult), responses: make(chan message), closed: make(chan struct{})}
}

func (s *script) write(messages [][]byte) (int, error) {
	texts := make([][]byte, len(messages))
	copy(texts, messages)
	s.writes <- texts
	r := <-s.results
	return r.complete, r.err
}

func (s *script) read() (message, error) {
	select {
	case m, open := <-s.responses:
		if !open {
			return m, io.EOF
		}
		return m, nil
	case <-s.closed:
		return message{}, io.ErrClosedPipe
	}
}

func (s *script) close() error  { close(s.closed); return nil }
func (s *script) ping() error   { s.pings++; return nil }
func (s *script) heard() uint64 { return s.sounds }

// written lets one write return, and returns the messages of that write.
func (s *script) written(complete int, err error) (texts []string) {
	for _, text := range <-s.writes {
		texts = append(texts, string(text))
	}
	s.results <- writeResult{complete, err}
	return texts
}

// begin starts a stream on a script.
func begin(t *testing.T, limit int) (*script, *stream) {
	f := newScript()
	s := newStream(f, limit, 0)
	go s.run()
	t.Cleanup(func() { s.end(errors.New("the test is over")); <-f.closed })
	return f, s
}

// start starts a call whose text is the call's id.
func start(t *testing.T, s *stream, id uint64) Pending {
	p := Pending{method: "m", stream: s, call: newCall(id, fmt.Append(nil, id))}
	require.NoError(t, s.start(p.call))
	return p
}

// startMany starts calls 1 to n. When it returns, call 1 is being written.
func startMany(t *testing.T, f *script, s *stream, n uint64) (calls []Pending, first [][]byte) {
	calls = append(calls, Pending{method: "m", stream: s, call: newCall(1, []byte("1"))})
	go func() { assert.NoError(t, s.start(calls[0].call)) }()
	first = <-f.writes
	for id := uint64(2); id <= n; id++ {
		calls = append(calls, start(t, s, id))
	}
	return calls, first
}

// Calls that are started during a write are sent in the next write, in order.
func TestStreamBatchesCalls(t *testing.T) {
	f, s := begin(t, 0)
	calls, first := startMany(t, f, s, 4)
	assert.Len(t, first, 1)
	f.results <- writeResult{1, nil}
	assert.Equal(t, []string{"2", "3", "4"}, f.written(3, nil))
	for _, id := range []uint64{3, 1, 4, 2} {
		f.responses <- message{id: id, result: fmt.Append(nil, id)}
	}
	for i, c := range calls {
		var got int
		require.NoError(t, c.Wait(t.Context(), &got))
		assert.Equal(t, i+1, got)
	}
}

// After a failed write, calls that were not written completely were certainly not executed.
func TestStreamDistinguishesUnwrittenCalls(t *testing.T) {
	f, s := begin(t, 0)
	calls, _ := startMany(t, f, s, 5)
	f.results <- writeResult{1, nil}
	<-f.writes
	late := start(t, s, 6) // only queued
	f.results <- writeResult{2, io.ErrShortWrite}
	for i, c := range append(calls, late) {
		want := Unreachable
		if i < 3 {
			want = OutcomeUnknown
		}
		assert.Equal(t, want, KindOf(c.Wait(t.Context(), nil)), "call %d", i+1)
	}
	require.ErrorIs(t, s.start(newCall(7, nil)), io.ErrShortWrite)
}

// If the connection closes while a call is being written, only the result of the write shows
// whether the call was sent.
func TestStreamEndsDuringAWrite(t *testing.T) {
	for complete, want := range map[int]Kind{0: Unreachable, 1: OutcomeUnknown} {
		f, s := begin(t, 0)
		calls, _ := startMany(t, f, s, 2)
		close(f.responses)
		<-s.ended
		require.ErrorIs(t, calls[1].Wait(t.Context(), nil), Unreachable, "the call was only queued")
		assert.False(t, calls[0].unsent())
		f.results <- writeResult{complete, map[bool]error{true: io.ErrShortWrite}[complete == 0]}
		assert.Equal(t, want, KindOf(calls[0].Wait(t.Context(), nil)))
	}
}

// If a caller gives up while its call is still queued, the call is withdrawn. Other calls are not
// affected.
func TestStreamWithdrawsQueuedCalls(t *testing.T) {
	f, s := begin(t, 0)
	calls, _ := startMany(t, f, s, 4)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, calls[0].Wait(gone, nil), OutcomeUnknown, "the call is being written")
	err := calls[2].Wait(gone, nil)
	require.ErrorIs(t, err, Unreachable)
	require.ErrorIs(t, err, context.Canceled)
	f.results <- writeResult{1, nil}
	assert.Equal(t, []string{"2", "4"}, f.written(2, nil))
	for _, id := range []uint64{1, 2, 4} {
		f.responses <- message{id: id, result: []byte("true")}
	}
	for _, i := range []int{0, 1, 3} {
		require.NoError(t, calls[i].Wait(t.Context(), nil))
	}
	require.ErrorIs(t, calls[2].Wait(t.Context(), nil), Unreachable)
}

// Responses with unknown ids, or to calls that have not been written yet, have no effect.
func TestStreamIgnoresUnknownIDs(t *testing.T) {
	f, s := begin(t, 0)
	calls, _ := startMany(t, f, s, 2)
	for _, id := range []uint64{0, 2, 99, 1 << 63} {
		f.responses <- message{id: id, result: []byte(`"wrong"`)}
	}
	// Call 1 gets its response even though the write of its request has not returned.
	f.responses <- message{id: 1, result: []byte(`"right"`)}
	f.responses <- message{id: 1, result: []byte(`"again"`)}
	f.results <- writeResult{1, nil}
	f.written(1, nil)
	f.responses <- message{id: 2, result: []byte(`"right"`)}
	for _, c := range calls {
		var got string
		require.NoError(t, c.Wait(t.Context(), &got))
		assert.Equal(t, "right", got)
	}
}

// If the peer announces that it is stopping, the stream accepts no further calls, and ends after
// the calls that are still awaited.
func TestStreamEndsWhenThePeerStops(t *testing.T) {
	f, s := begin(t, 0)
	calls, _ := startMany(t, f, s, 3)
	f.results <- writeResult{1, nil}
	f.written(2, nil)
	f.responses <- message{method: `"another.notification"`}
	f.responses <- message{}
	assert.False(t, s.isDraining())
	f.responses <- message{method: drainingMethod}
	f.responses <- message{id: 1, result: []byte("true")}
	require.NoError(t, calls[0].Wait(t.Context(), nil))
	require.ErrorIs(t, s.start(newCall(4, nil)), errLeaving)

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, calls[1].Wait(gone, nil), OutcomeUnknown)
	f.responses <- message{id: 3, result: []byte("true")}
	require.NoError(t, calls[2].Wait(t.Context(), nil))
	<-s.ended
	err, answered := s.outcome()
	require.ErrorIs(t, err, errLeaving)
	assert.True(t, answered)
	require.ErrorIs(t, calls[1].Wait(t.Context(), nil), OutcomeUnknown)
}

func TestStreamLimitsPendingCalls(t *testing.T) {
	f, s := begin(t, 2)
	calls, _ := startMany(t, f, s, 2)
	f.results <- writeResult{1, nil}
	f.written(1, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, calls[0].Wait(gone, nil), OutcomeUnknown)
	require.ErrorIs(t, s.start(newCall(3, nil)), errFull, "the peer is still executing the call for which no caller waits")
	f.responses <- message{id: 1, result: []byte("true")}
	f.responses <- message{}
	go func() { f.written(1, nil) }()
	start(t, s, 3)
}

// While a call is awaited, silence leads to a ping, and then to the end of the connection. Any
// received data counts as a sign of life.
func TestSilentStreamIsPingedAndClosed(t *testing.T) {
	f, s := begin(t, 0)
	tick := func(times int) {
		for range times {
			s.tick()
		}
	}
	tick(leaveAfter - 1)
	assert.Zero(t, f.pings, "no call is awaited")
	go func() { f.written(1, nil) }()
	p := start(t, s, 1)
	f.sounds++
	tick(pingAfter)
	assert.Zero(t, f.pings)
	tick(1)
	assert.Equal(t, 1, f.pings)
	assert.Empty(t, f.written(0, nil), "the ping alone")
	f.sounds++
	tick(lostAfter)
	assert.Empty(t, f.written(0, nil))
	select {
	case <-s.ended:
		require.Fail(t, "the response to a ping must count")
	default:
	}
	tick(1)
	<-s.ended
	err := p.Wait(t.Context(), nil)
	require.ErrorIs(t, err, OutcomeUnknown)
	require.ErrorIs(t, err, errSilent)
	assert.Equal(t, 2, f.pings)
}
