package spdkrpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A call whose context has ended is not sent, even if a connection exists.
func TestSocketSendsNothingAfterCancellation(t *testing.T) {
	var got []string
	served := make(chan struct{})
	s := dial(t, listen(t, func(p *peer) {
		defer close(served)
		for {
			var c call
			if p.dec.Decode(&c) != nil {
				return
			}
			got = append(got, c.Method)
			p.answer(c, "true")
		}
	}))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(method string) {
		err := s.Call(cancelled, method, nil, nil)
		require.ErrorIs(t, err, Unreachable, method)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, OutcomeUnknown)
	}
	refused("before the connection")
	require.NoError(t, s.Call(t.Context(), "connects", nil, nil))
	for range 5 {
		refused("on the connection")
	}
	require.NoError(t, s.Call(t.Context(), "after", nil, nil))
	require.NoError(t, s.Close())
	<-served
	assert.Equal(t, []string{"connects", "after"}, got)
}

func TestCallCanceledWhileConnectingIsNotSent(t *testing.T) {
	var first call
	handle := func(p *peer) {
		// If nothing can be decoded, this connection belongs to the abandoned attempt: no caller
		// was waiting for it.
		if p.dec.Decode(&first) == nil {
			p.answer(first, "true")
		}
	}
	path := listen(t, handle, handle)
	ctx, cancel := context.WithCancel(t.Context())
	s := NewSocket(path, WithPeerCheck(func(net.Conn) error { cancel(); return nil }))
	defer s.Close()
	require.ErrorIs(t, s.Call(ctx, "cancelled", nil, nil), Unreachable)
	require.NoError(t, s.Call(t.Context(), "next", nil, nil))
	assert.Equal(t, "next", first.Method)
}

// A caller waits for a connection no longer than the caller's own context allows. While it is
// waiting, it does not block other callers, Connected or Close.
func TestConnectingDoesNotBlockOtherCallers(t *testing.T) {
	path := listen(t, func(p *peer) { p.answer(p.read(), "true") }, func(p *peer) { p.answer(p.read(), "true") })
	checking, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := NewSocket(path, WithPeerCheck(func(net.Conn) error {
		once.Do(func() { close(checking) })
		<-goOn
		return nil
	}))
	defer s.Close()
	patient := make(chan error, 1)
	go func() { patient <- s.Call(t.Context(), "patient", nil, nil) }()
	<-checking

	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() { waits <- s.Call(ctx, "impatient", nil, nil) }()
		if _, connected := s.Connected(); connected {
			waits <- errors.New("nothing is connected yet")
		}
		cancel()
		ended <- <-waits
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, Unreachable)
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		close(goOn)
		t.Fatal("a caller waits for another's connection in spite of its context")
	}
	close(goOn)
	require.NoError(t, <-patient)
}

func TestCloseEndsCallsThatWaitForAConnection(t *testing.T) {
	path := listen(t, func(*peer) {})
	checking, goOn := make(chan struct{}), make(chan struct{})
	s := NewSocket(path, WithPeerCheck(func(net.Conn) error { close(checking); <-goOn; return nil }))
	waits := make(chan error, 1)
	go func() { waits <- s.Call(t.Context(), "m", nil, nil) }()
	<-checking
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Error("Close waits for a connection")
	}
	close(goOn)
	require.ErrorIs(t, <-waits, Unreachable)
}
