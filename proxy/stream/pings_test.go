package stream

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/clientconn"
	"github.com/spdkgate/spdkgate/proxy/gate"
)

// A client that sends pings but does not read cannot exhaust memory, because at most one pong waits
// to be written.
func TestPongsDoNotAccumulate(t *testing.T) {
	ours, theirs := net.Pipe() // each write blocks until it is read
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	g := &gate.Gate{}
	g.Complete(gate.Options{Clients: clientconn.New(clientconn.Limits{}, nil)}, nil)
	s := &socket{gate: g, net: ours}
	c := newConn(g, s, ours, auditlog.Source{})
	writing := make(chan struct{})
	go c.send([][]byte{[]byte("a response")}, nil, func() { close(writing) })
	require.Eventually(t, func() bool {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		return c.out.writing && len(c.out.replies) == 0
	}, time.Minute, time.Millisecond)
	for range 1000 {
		s.pong(c, "still there?")
	}
	c.out.mu.Lock()
	assert.Equal(t, 1, len(c.out.replies))
	c.out.mu.Unlock()

	read := func(n int) string {
		text := make([]byte, n)
		for got := 0; got < n; {
			more, err := theirs.Read(text[got:])
			require.NoError(t, err)
			got += more
		}
		return string(text)
	}
	assert.Equal(t, "a response", read(len("a response")))
	<-writing
	assert.Equal(t, "\x8a\x0cstill there?", read(14))
	go s.pong(c, "and now?")
	assert.Equal(t, "\x8a\x08and now?", read(10), "the next ping is answered")
}
