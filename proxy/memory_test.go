package proxy

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/gate"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
)

// takeMemory reserves more memory than a user may use, and returns the number of bytes.
func (b *bench) takeMemory(user string) int {
	const n = gate.MemoryPerUser + 8<<20
	b.proxy.gate.AddFor(user, n)
	return n
}

// A call with a long response waits while pending responses exhaust the user's memory limit.
func TestLongResponseWaitsForMemory(t *testing.T) {
	b := newBench(t, "v26.05")
	for i := range 100 {
		b.post(createNamed(fmt.Sprint("m", i)))
	}
	const list = `{"id":1,"method":"bdev_get_bdevs"}`
	require.Equal(t, http.StatusOK, b.post(list).StatusCode, "the proxy now knows that the response is long")
	n := b.takeMemory("admin") // simulates responses that arrived after this call was admitted
	conn, err := b.proxy.target.Connect(t.Context(), "admin")
	require.NoError(t, err)
	answered := make(chan error)
	go func() {
		_, err := conn.Call(t.Context(), "admin", "bdev_get_bdevs", nil, long)
		answered <- err
	}()
	require.Eventually(t, func() bool { return b.proxy.target.Load().Waiting == 1 }, long, time.Millisecond)
	b.proxy.gate.ReleaseFor("admin", n)
	b.proxy.target.MemoryReleased()
	require.NoError(t, <-answered)
}

// The declared length of a body is counted before the body arrives, so that many slow bodies cannot
// exceed the limit.
func TestDeclaredBodyLengthsAreLimited(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(long) })
	s := serve(t, b)
	head := "POST / HTTP/1.1\r\nHost: x\r\n" + asUser("viewer")
	for i := range gate.MemoryPerUser / (gate.DecodedSize * b.config.Limits.RequestKiB << 10) {
		length := "Content-Length: 262144\r\n\r\n"
		if i%2 == 0 {
			length = "Transfer-Encoding: chunked\r\n\r\n"
		}
		s.dial().send(head + length)
	}
	require.Eventually(t, func() bool {
		own, _ := b.proxy.gate.MemoryInUse("viewer")
		return own == gate.MemoryPerUser
	}, long, time.Millisecond)
	c := s.dial()
	c.send(head + "Content-Length: 262144\r\n\r\n")
	assert.Equal(t, http.StatusTooManyRequests, c.answer().StatusCode)
	good := s.dial()
	good.call(version)
	assert.Equal(t, http.StatusOK, good.answer().StatusCode)
}

// All memory is released, whatever the outcome of the request.
func TestMemoryIsReleased(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, body := range []string{version, createMalloc, `{`, `[` + version + `,` + version + `]`, `{"method":"nope"}`} {
		b.post(body)
	}
	s := serve(t, b)
	c := s.dial()
	c.call(version)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool {
		_, total := b.proxy.gate.MemoryInUse("")
		return total == 0
	}, long, time.Millisecond)
}

// A message on a stream counts against the user's memory limit while its calls run.
func TestMessagesOnStreamsNeedMemory(t *testing.T) {
	b := newBench(t, "v26.05")
	c := serve(t, b).stream("viewer", viewerPassword)
	assert.NotEmpty(t, c.send(version).next().Result)
	n := b.takeMemory("viewer")
	refused := c.send(version).next()
	require.NotNil(t, refused.Error)
	assert.Equal(t, jsonrpc.CodeTooMany, refused.Error.Code)
	b.proxy.gate.ReleaseFor("viewer", n)
	assert.NotEmpty(t, c.send(version).next().Result)
	require.NoError(t, c.ws.Close())
	b.nothingIsHeld()
}
