package spdkrpc

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// A peer is the target's end of one connection.
type peer struct {
	t testing.TB
	net.Conn
	dec *json.Decoder
}

type call struct {
	ID     uint64          `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

func (p *peer) read() (c call) {
	require.NoError(p.t, p.dec.Decode(&c))
	return c
}

func (p *peer) write(s string) {
	_, err := p.Write([]byte(s))
	require.NoError(p.t, err)
}

func (p *peer) answer(c call, result string) {
	id, _ := json.Marshal(c.ID)
	p.write(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + "}\n")
}

// listen simulates a target that serves its connections one after another, each with the next
// handler.
func listen(t testing.TB, handlers ...func(*peer)) string {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for _, handle := range handlers {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handle(&peer{t: t, Conn: c, dec: json.NewDecoder(c)})
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); done.Wait() })
	return path
}

func dial(t testing.TB, path string) *Socket {
	s := NewSocket(path)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestSocketMatchesResponsesByID(t *testing.T) {
	const n = 50
	s := dial(t, listen(t, func(p *peer) {
		calls := make([]call, n)
		for i := range calls {
			calls[i] = p.read()
		}
		for i := range calls { // the peer responds to the last request first
			c := calls[n-1-i]
			p.answer(c, string(c.Params))
		}
	}))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			var got map[string]int
			assert.NoError(t, s.Call(t.Context(), "echo", map[string]int{"i": i}, &got))
			assert.Equal(t, i, got["i"])
		})
	}
	wg.Wait()
}

func TestSocketDropsLateResponses(t *testing.T) {
	gaveUp := make(chan struct{})
	s := dial(t, listen(t, func(p *peer) {
		late := p.read()
		<-gaveUp
		p.answer(late, `"late"`)
		p.write(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`)
		next := p.read()
		p.answer(next, `"next"`)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.Call(ctx, "slow", nil, nil)
	require.ErrorIs(t, err, OutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(gaveUp)
	var got string
	require.NoError(t, s.Call(t.Context(), "next", nil, &got))
	assert.Equal(t, "next", got)
}

// A call without a deadline does not wait forever for a target that does not respond.
func TestSocketLimitsCallsWithoutDeadline(t *testing.T) {
	ended := make(chan struct{})
	path := listen(t, func(p *peer) { p.read(); <-ended })
	s := NewSocket(path, WithTimeout(20*time.Millisecond))
	t.Cleanup(func() { _ = s.Close() })
	defer close(ended)
	err := s.Call(t.Context(), "slow", nil, nil)
	require.ErrorIs(t, err, OutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Equal(t, time.Minute, NewSocket(path).wait)
}

func TestSocketReconnectsAfterALostConnection(t *testing.T) {
	path := listen(t,
		func(p *peer) { p.read() }, // ends the connection while a call is in flight
		func(p *peer) { p.answer(p.read(), "7") })
	s := dial(t, path)
	err := s.Call(t.Context(), "lost", nil, nil)
	require.ErrorIs(t, err, OutcomeUnknown)
	var got int
	require.NoError(t, s.Call(t.Context(), "again", nil, &got))
	assert.Equal(t, 7, got)
}

func TestSocketWithOneConnectionDoesNotReconnect(t *testing.T) {
	path := listen(t, func(p *peer) { p.read() }) // ends the connection while a call is in flight
	s := NewSocket(path, WithOneConnection())
	t.Cleanup(func() { _ = s.Close() })
	require.ErrorIs(t, s.Call(t.Context(), "lost", nil, nil), OutcomeUnknown)
	// A call that is made right after the connection is lost may not notice the loss.
	require.Eventually(t, func() bool {
		err := s.Call(t.Context(), "again", nil, nil)
		assert.ErrorIs(t, err, Unreachable)
		return errors.Is(err, net.ErrClosed)
	}, time.Minute, time.Millisecond, "the client still tries to connect")
}

func TestMissingSocketIsUnreachable(t *testing.T) {
	err := dial(t, filepath.Join(t.TempDir(), "none")).Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, Unreachable)
	assert.NotErrorIs(t, err, OutcomeUnknown)

	s := NewSocket("irrelevant")
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Call(t.Context(), "m", nil, nil), net.ErrClosed)
}

func TestSocketDoesNotSendRequestsOverTheLimits(t *testing.T) {
	s := dial(t, listen(t, func(p *peer) { p.answer(p.read(), "true") }))
	for name, params := range map[string]any{
		"bytes":  map[string]string{"a": strings.Repeat("x", 33<<10)},
		"values": map[string][]int{"a": make([]int, 1025)},
		// Each of these characters takes six bytes in JSON.
		"escapes": map[string]string{"a": strings.Repeat("\x01", 10<<10)},
	} {
		err := s.Call(t.Context(), "m", params, nil)
		require.ErrorIs(t, err, InvalidParams, name)
		var lim *jsonrpc.LimitError
		require.True(t, errors.As(err, &lim), name)
	}
	s.SetLimits(jsonrpc.LimitsV2605)
	require.NoError(t, s.Call(t.Context(), "m", map[string]string{"a": strings.Repeat("x", 33<<10)}, nil))
}

func TestSocketErrorsHaveTheKindOfTheirCode(t *testing.T) {
	s := dial(t, listen(t, func(p *peer) {
		for {
			var c call
			if p.dec.Decode(&c) != nil {
				return
			}
			id, _ := json.Marshal(c.ID)
			p.write(`{"jsonrpc":"2.0","id":` + string(id) + `,"error":{"code":` + string(c.Params[5:len(c.Params)-1]) + `,"message":"hm"}}`)
		}
	}))
	for code, kind := range kinds {
		err := s.Call(t.Context(), "m", map[string]int{"c": code}, nil)
		var e *Error
		require.True(t, errors.As(err, &e))
		assert.Equal(t, Error{Method: "m", Kind: kind, Code: code, Message: "hm"}, *e)
		assert.ErrorIs(t, err, kind)
	}
	assert.ErrorIs(t, s.Call(t.Context(), "m", map[string]int{"c": -4711}, nil), Failed)
	assert.ErrorIs(t, s.Call(t.Context(), "m", map[string]int{"c": -1}, nil), Failed)
	assert.ErrorIs(t, s.Call(t.Context(), "bdev_lvol_create_lvstore", map[string]int{"c": -1}, nil), Busy)
}

// If the client notices before it sends a call that the connection has been closed, it sends the
// call on a new connection.
func TestSocketSendsOnANewConnection(t *testing.T) {
	for name, options := range map[string][]SocketOption{"connects again": nil, "one connection": {WithOneConnection()}} {
		t.Run(name, func(t *testing.T) {
			gone := func(p *peer) { _ = p.dec.Decode(new(call)) }
			path := listen(t, gone, func(p *peer) { p.answer(p.read(), "true") })
			connections := 0
			s := NewSocket(path, append(options, WithPeerCheck(func(c net.Conn) error {
				connections++
				if connections == 1 {
					return c.Close()
				}
				return nil
			}))...)
			t.Cleanup(func() { _ = s.Close() })
			err := s.Call(t.Context(), "next", nil, nil)
			if options == nil {
				require.NoError(t, err)
				assert.Equal(t, 2, connections)
				return
			}
			require.ErrorIs(t, err, Unreachable)
			require.NoError(t, NewSocket(path).Call(t.Context(), "next", nil, nil))
		})
	}
}

// Calls that were still queued, or had not been completely written, when their connection closed
// are sent on a new connection.
func TestSocketSendsQueuedCallsAgain(t *testing.T) {
	s := dial(t, listen(t, func(p *peer) {
		p.answer(p.read(), "true")
		p.answer(p.read(), "true")
	}))
	f, former := begin(t, 0)
	s.stream = former
	var calls sync.WaitGroup
	calls.Go(func() { assert.NoError(t, s.Call(t.Context(), "first", nil, nil)) })
	<-f.writes
	calls.Go(func() { assert.NoError(t, s.Call(t.Context(), "second", nil, nil)) })
	for former.callsInFlight() < 2 {
	}
	f.results <- writeResult{0, net.ErrClosed}
	calls.Wait()
}
