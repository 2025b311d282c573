package clientconn

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Accepted connections stay in the set until they are closed. A connection beyond the limit is
// closed immediately, and the listener continues to accept.
func TestListenerLimitsConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := New(Limits{Connections: 4, PerSource: 1, WriteWait: writeWait}, slog.New(slog.DiscardHandler))
	l := s.Listener(inner)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := dial()
	server := <-accepted
	assert.Equal(t, 1, s.Open())
	_, err = dial().Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "a second one from there is closed")
	assert.Equal(t, 1, s.Closed())

	// The client receives the last response although the connection has been closed for writing.
	_, err = server.Write([]byte("bye"))
	require.NoError(t, err)
	require.NoError(t, server.(*Conn).CloseWrite())
	text, err := io.ReadAll(first)
	require.NoError(t, err)
	assert.Equal(t, "bye", string(text))
	require.NoError(t, server.Close())
	assert.Zero(t, s.Open())
	_, err = server.Write([]byte("more"))
	require.ErrorIs(t, err, net.ErrClosed)
	dial()
	require.NoError(t, (<-accepted).Close())

	require.NoError(t, l.Close())
	require.ErrorIs(t, <-ended, net.ErrClosed)
}

// The Set recognizes its connections underneath TLS, and ignores connections from other listeners.
func TestConnectionsOfOtherListenersAreNotCounted(t *testing.T) {
	s := New(Limits{Connections: 1, PerSource: 1}, slog.New(slog.DiscardHandler))
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	assert.True(t, s.Authenticated(a))
	s.ConnState(a, http.StateActive)
	assert.False(t, sourceOf(a.RemoteAddr()).IsValid(), "a pipe has no address")
	require.NoError(t, (&Conn{Conn: a}).CloseWrite(), "a connection that cannot be half-closed stays open")

	raw := &from{address: "192.0.2.1:1"}
	c, ok := s.accept(raw)
	require.True(t, ok)
	encrypted := tls.Server(c, &tls.Config{})
	s.ConnState(encrypted, http.StateActive)
	assert.True(t, s.Authenticated(encrypted))
	_, ok = s.accept(&from{address: "192.0.2.2:1"})
	assert.False(t, ok, "it is authenticated")
	s.ConnState(encrypted, http.StateClosed)
	require.NoError(t, encrypted.Close())
	assert.Zero(t, s.Open())
}
