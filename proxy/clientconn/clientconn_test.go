package clientconn

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const writeWait = 30 * time.Second

// from is a connection with an invented remote address.
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

func TestConnectionsAreLimited(t *testing.T) {
	var log bytes.Buffer
	s := New(Limits{Connections: 6, PerSource: 4}, slog.New(slog.NewTextHandler(&log, nil)))
	open := func(address string) (*Conn, *from, bool) {
		raw := &from{address: address}
		c, ok := s.accept(raw)
		assert.Equal(t, ok, !raw.closed)
		return c, raw, ok
	}
	var flood []*Conn
	var raws []*from
	for range 4 {
		c, raw, ok := open("192.0.2.1:1000")
		require.True(t, ok)
		flood, raws = append(flood, c), append(raws, raw)
	}
	_, _, ok := open("192.0.2.1:1001")
	assert.False(t, ok, "the limit of one source is reached")
	a, _, ok := open("[2001:db8::1]:1")
	require.True(t, ok)
	_, _, ok = open("[2001:db8::ffff:2]:1")
	require.True(t, ok)
	assert.Equal(t, 6, s.count)

	s.ConnState(flood[0], http.StateActive)
	require.True(t, s.Authenticated(flood[0]))
	flood[1].evictable = flood[2].evictable.Add(time.Minute)
	_, _, ok = open("198.51.100.7:1")
	assert.True(t, ok, "a connection of the largest source is evicted")
	assert.Equal(t, []bool{false, false, true, false}, []bool{raws[0].closed, raws[1].closed, raws[2].closed, raws[3].closed}, "the one that has been idle for longest")
	assert.Equal(t, 6, s.count)
	_, _, ok = open("[2001:db8::3]:1")
	assert.False(t, ok, "a /64 is one source, which has as many as the largest")
	assert.Equal(t, 1, strings.Count(log.String(), "connections closed because too many were open"), "one log line for all closed connections")
	assert.Equal(t, 3, s.Closed(), "two new connections and an idle one")

	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "a second close is not counted")
	assert.Equal(t, 5, s.count)
	for _, c := range flood {
		require.NoError(t, c.Close())
	}
	assert.Equal(t, 2, s.count)
	assert.Len(t, s.sources, 2)
}

func TestConnWritesAllBytes(t *testing.T) {
	a, b := net.Pipe()
	text := strings.Repeat("0123456789", maxWrite/4)
	go func() {
		n, err := (&Conn{Conn: a, writeWait: writeWait}).Write([]byte(text))
		assert.NoError(t, err)
		assert.Equal(t, len(text), n)
		_ = a.Close()
	}()
	read, err := io.ReadAll(b)
	require.NoError(t, err)
	assert.Equal(t, text, string(read))
}

// A client that reads nothing is disconnected. So is a client that reads each piece of a response
// just in time, because that is too slow for the whole response.
func TestSlowReadersAreDisconnected(t *testing.T) {
	const size = 32 << 20
	for name, pause := range map[string]time.Duration{"nothing": time.Hour, "a piece every 29 s": 29 * time.Second, "all that comes": 0} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			go func() {
				for piece := make([]byte, maxWrite); ; time.Sleep(pause) {
					if _, err := io.ReadFull(b, piece); err != nil {
						return
					}
				}
			}()
			c, started := &Conn{Conn: a, writeWait: writeWait}, time.Now()
			_, err := c.Write(make([]byte, size))
			took := time.Since(started)
			if pause == 0 {
				require.NoError(t, err, name)
				c.startAnswer()
				time.Sleep(time.Hour)
				_, err = c.Write(make([]byte, size))
				require.NoError(t, err, "the next response has its own time limit")
			} else {
				var timeout net.Error
				require.ErrorAs(t, err, &timeout, name)
				assert.True(t, timeout.Timeout())
				assert.Less(t, took, 2*writeWait+size*time.Second/slowestClient, name)
			}
			_, _ = a.Close(), b.Close()
			time.Sleep(2 * pause) // until the reader notices
		})
	}
}

// If the largest source has no evictable connection, a connection of the next largest source is
// evicted. An evicted connection can no longer be authenticated.
func TestEvictionConsidersEverySource(t *testing.T) {
	var log bytes.Buffer
	s := New(Limits{Connections: 5, PerSource: 4}, slog.New(slog.NewTextHandler(&log, nil)))
	open := func(address string) (*Conn, bool) {
		return s.accept(&from{address: address})
	}
	for range 3 {
		c, ok := open("192.0.2.1:1")
		require.True(t, ok)
		s.ConnState(c, http.StateActive)
		require.True(t, s.Authenticated(c))
	}
	var second []*Conn
	for range 2 {
		c, ok := open("192.0.2.2:1")
		require.True(t, ok)
		s.ConnState(c, http.StateActive)
		second = append(second, c)
	}
	require.True(t, s.Authenticated(second[0]))
	_, ok := open("192.0.2.3:1")
	require.True(t, ok, "it replaces one that is not authenticated")
	assert.False(t, s.Authenticated(second[1]))
	assert.Equal(t, 5, s.count)

	_, ok = open("192.0.2.4:1")
	assert.False(t, ok, "all others are authenticated, or their source has no more connections than the new one's")
	s.ConnState(second[0], http.StateIdle)
	s.ConnState(second[0], http.StateActive)
	_, ok = open("192.0.2.4:1")
	assert.False(t, ok, "a connection stays authenticated after it was idle")
}
