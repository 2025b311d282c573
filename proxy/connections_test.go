package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// from is a connection that comes from an address.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (c *from) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", c.address)
	if err != nil {
		panic(err)
	}
	return a
}

func (c *from) Close() error { c.closed = true; return nil }

func TestConnectionsAreBounded(t *testing.T) {
	log := new(logBook)
	s := newConnections(config.Limits{Connections: 6, ConnectionsPerSource: 4}, config.NewLogger(log, config.Log{Format: "json"}))
	open := func(address string) (*clientConn, *from, bool) {
		raw := &from{address: address}
		c, ok := s.admit(raw)
		assert.Equal(t, ok, !raw.closed)
		return c, raw, ok
	}
	var flood []*clientConn
	var raws []*from
	for range 4 {
		c, raw, ok := open("192.0.2.1:1000")
		require.True(t, ok)
		flood, raws = append(flood, c), append(raws, raw)
	}
	_, _, ok := open("192.0.2.1:1001")
	assert.False(t, ok, "one source may have so many")
	a, _, ok := open("[2001:db8::1]:1")
	require.True(t, ok)
	_, _, ok = open("[2001:db8::ffff:2]:1")
	require.True(t, ok)
	assert.Equal(t, 6, s.count)

	s.connState(flood[0], http.StateActive)
	require.True(t, s.authenticated(flood[0]))
	flood[1].evictable = flood[2].evictable.Add(time.Minute)
	_, _, ok = open("198.51.100.7:1")
	assert.True(t, ok, "whoever takes all places makes room for others")
	assert.Equal(t, []bool{false, false, true, false}, []bool{raws[0].closed, raws[1].closed, raws[2].closed, raws[3].closed}, "by the one that is idle for longest")
	assert.Equal(t, 6, s.count)
	_, _, ok = open("[2001:db8::3]:1")
	assert.False(t, ok, "a /64 is one source, which has no fewer than the largest")
	assert.Len(t, log.lines(t, "connections closed, as too many were open"), 1, "not for each")
	assert.Equal(t, 3, s.closedInAll(), "two newcomers and one that was idle")

	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "counts once")
	assert.Equal(t, 5, s.count)
	for _, c := range flood {
		require.NoError(t, c.Close())
	}
	assert.Equal(t, 2, s.count)
	assert.Len(t, s.sources, 2)
}

func TestClientConnWritesEverything(t *testing.T) {
	a, b := net.Pipe()
	text := strings.Repeat("0123456789", largestWrite/4)
	go func() {
		n, err := (&clientConn{Conn: a}).Write([]byte(text))
		assert.NoError(t, err)
		assert.Equal(t, len(text), n)
		_ = a.Close()
	}()
	read, err := io.ReadAll(b)
	require.NoError(t, err)
	assert.Equal(t, text, string(read))
}

// A client that takes an answer as slowly as it may piece by piece is too slow
// for the whole of it; and so is one that takes nothing.
func TestSlowReadersAreCutOff(t *testing.T) {
	const size = 32 << 20
	for name, pause := range map[string]time.Duration{"nothing": time.Hour, "a piece every 29 s": 29 * time.Second, "all that comes": 0} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			go func() {
				for piece := make([]byte, largestWrite); ; time.Sleep(pause) {
					if _, err := io.ReadFull(b, piece); err != nil {
						return
					}
				}
			}()
			c, started := &clientConn{Conn: a}, time.Now()
			_, err := c.Write(make([]byte, size))
			took := time.Since(started)
			if pause == 0 {
				require.NoError(t, err, name)
				c.startAnswer()
				time.Sleep(time.Hour)
				_, err = c.Write(make([]byte, size))
				require.NoError(t, err, "the next answer has its own time")
			} else {
				var timeout net.Error
				require.ErrorAs(t, err, &timeout, name)
				assert.True(t, timeout.Timeout())
				assert.Less(t, took, 2*writeWait+size*time.Second/slowestClient, name)
			}
			_, _ = a.Close(), b.Close()
			time.Sleep(2 * pause) // until the reader has noticed
		})
	}
}

func TestMemoryOfUsersIsBounded(t *testing.T) {
	var h held
	n, err := h.take("a", 10*heldPerUser)
	require.NoError(t, err, "whoever has nothing is not refused")
	_, err = h.take("a", 1)
	require.ErrorIs(t, err, errHeld)
	_, err = h.take("b", 1)
	require.NoError(t, err, "and others go on")
	h.give("a", n)
	n, err = h.take("a", heldPerUser-1)
	require.NoError(t, err)
	n += h.keep("a", 1)
	_, err = h.take("a", 1)
	require.ErrorIs(t, err, errHeld)
	assert.False(t, h.full("a"))
	for _, user := range []string{"c", "d", "e"} {
		_, err := h.take(user, heldPerUser)
		require.NoError(t, err)
	}
	h.keep("c", 2*heldBesides)
	assert.True(t, h.full("c"), "more than anybody may have")
	assert.True(t, h.full("d"), "more than all may have")
	assert.False(t, h.full("b"), "who has next to nothing goes on")
	h.give("c", 2*heldBesides)
	assert.False(t, h.full("d"))
	_, err = h.take("b", 1)
	require.ErrorIs(t, err, errHeld, "nothing is left over")
	h.give("a", n)
	_, err = h.take("b", 1)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"b": 2, "c": heldPerUser, "d": heldPerUser, "e": heldPerUser}, h.of)
	assert.Equal(t, 3*heldPerUser+2, h.total)
	assert.Equal(t, http.StatusTooManyRequests, answerTo(errors.Join(errHeld)).status)
}

// A single call with a long answer waits while its user's answers fill the room.
func TestALongAnswerWaitsForRoom(t *testing.T) {
	b := newBench(t, "v26.05")
	for i := range 100 {
		b.post(createNamed(fmt.Sprint("m", i)))
	}
	const list = `{"id":1,"method":"bdev_get_bdevs"}`
	require.Equal(t, http.StatusOK, b.post(list).StatusCode, "it is long, as is known now")
	slow := &exchange{user: "admin", answered: 1} // by answers that came when this one had been let in
	slow.held = b.proxy.held.keep("admin", heldPerUser+2*heldBesides)
	conn, err := b.proxy.target.Connect(t.Context(), "admin")
	require.NoError(t, err)
	answered := make(chan error)
	go func() {
		_, err := conn.Call(t.Context(), "admin", "bdev_get_bdevs", nil, long)
		answered <- err
	}()
	require.Eventually(t, func() bool { return b.proxy.target.Load().Waiting == 1 }, long, time.Millisecond)
	b.proxy.giveHeld(slow)
	require.NoError(t, <-answered)
}

// What is announced counts before it comes: many bodies that come slowly take no
// more memory than others.
func TestAnnouncedBodiesAreBounded(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(long) })
	s := serve(t, b)
	head := "POST / HTTP/1.1\r\nHost: x\r\n" + asUser("viewer")
	for i := range heldPerUser / (decodedSize * b.config.Limits.RequestKiB << 10) {
		length := "Content-Length: 262144\r\n\r\n"
		if i%2 == 0 {
			length = "Transfer-Encoding: chunked\r\n\r\n"
		}
		s.dial().send(head + length)
	}
	require.Eventually(t, func() bool {
		b.proxy.held.mu.Lock()
		defer b.proxy.held.mu.Unlock()
		return b.proxy.held.of["viewer"] == heldPerUser
	}, long, time.Millisecond)
	c := s.dial()
	c.send(head + "Content-Length: 262144\r\n\r\n")
	assert.Equal(t, http.StatusTooManyRequests, c.answer().StatusCode)
	good := s.dial()
	good.call(version)
	assert.Equal(t, http.StatusOK, good.answer().StatusCode)
}

// Everybody's bytes are given back, however their request ended.
func TestNothingIsHeldInTheEnd(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, body := range []string{version, createMalloc, `{`, `[` + version + `,` + version + `]`, `{"method":"nope"}`} {
		b.post(body)
	}
	s := serve(t, b)
	c := s.dial()
	c.call(version)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool {
		b.proxy.held.mu.Lock()
		defer b.proxy.held.mu.Unlock()
		return b.proxy.held.total == 0 && len(b.proxy.held.of) == 0
	}, long, time.Millisecond)
}
