package gate

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A stopping server accepts requests for a while, unless everything has ended before.
func TestStoppingServerAcceptsRequestsForAWhile(t *testing.T) {
	c := &inFlight{}
	require.NoError(t, c.enter(nil))
	drained, _ := c.drain()
	require.NoError(t, c.enter(nil), "clients learn only from a response that the server is stopping")
	c.leave()
	assert.False(t, isClosed(drained))
	c.until = time.Now().Add(-time.Second)
	require.ErrorIs(t, c.enter(nil), ErrDraining, "a request is still running")
	open, running := c.counts()
	assert.Equal(t, []int{0, 1}, []int{open, running})
	c.leave()
	assert.True(t, isClosed(drained))

	c = &inFlight{}
	drained, left := c.drain()
	assert.True(t, isClosed(drained) && isClosed(left), "nothing was running")
	require.ErrorIs(t, c.enter(nil), ErrDraining)
}

// A stopping server waits for the first request on each accepted connection, and for the end of the
// connections.
func TestStoppingServerWaitsForArrivals(t *testing.T) {
	one, other := &net.TCPConn{}, &net.UnixConn{}
	c := &inFlight{}
	for _, conn := range []net.Conn{one, other} {
		c.connState(conn, http.StateNew)
	}
	drained, left := c.drain()
	require.NoError(t, c.enter(one))
	c.leave()
	assert.False(t, isClosed(drained), "the other connection has sent no request")
	c.connState(one, http.StateActive)
	c.connState(other, http.StateClosed)
	assert.True(t, isClosed(drained))
	assert.False(t, isClosed(left))
	c.connState(one, http.StateClosed)
	assert.True(t, isClosed(left))
	open, running := c.counts()
	assert.Equal(t, []int{0, 0}, []int{open, running})

	for _, state := range []http.ConnState{http.StateIdle, http.StateHijacked} {
		c = &inFlight{}
		c.connState(one, http.StateNew)
		drained, left = c.drain()
		c.connState(one, state)
		assert.True(t, isClosed(drained), state)
		assert.Equal(t, state == http.StateHijacked, isClosed(left), state)
	}

	c = &inFlight{}
	c.connState(one, http.StateNew)
	drained, _ = c.drain()
	assert.False(t, isClosed(drained))
	c.forgetArrivals()
	assert.True(t, isClosed(drained), "no request has arrived in time")
}
