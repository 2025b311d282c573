package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
)

func TestMemoryOfUsersIsBounded(t *testing.T) {
	var h memoryBudget
	n, err := h.Reserve("a", 10*memoryPerUser)
	require.NoError(t, err, "a user without pending answers is not refused")
	_, err = h.Reserve("a", 1)
	require.ErrorIs(t, err, errMemory)
	_, err = h.Reserve("b", 1)
	require.NoError(t, err, "other users are not affected")
	h.Release("a", n)
	n, err = h.Reserve("a", memoryPerUser-1)
	require.NoError(t, err)
	n += h.Add("a", 1)
	_, err = h.Reserve("a", 1)
	require.ErrorIs(t, err, errMemory)
	assert.False(t, h.Exhausted("a"))
	for _, user := range []string{"c", "d", "e"} {
		_, err := h.Reserve(user, memoryPerUser)
		require.NoError(t, err)
	}
	h.Add("c", 2*memoryMargin)
	assert.True(t, h.Exhausted("c"), "more than the limit of one user")
	assert.True(t, h.Exhausted("d"), "more than the limit of all users")
	assert.False(t, h.Exhausted("b"), "a user with little memory is not affected")
	h.Release("c", 2*memoryMargin)
	assert.False(t, h.Exhausted("d"))
	_, err = h.Reserve("b", 1)
	require.ErrorIs(t, err, errMemory, "no memory is left")
	h.Release("a", n)
	_, err = h.Reserve("b", 1)
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"b": 2, "c": memoryPerUser, "d": memoryPerUser, "e": memoryPerUser}, h.ofUser)
	assert.Equal(t, 3*memoryPerUser+2, h.total)
	assert.Equal(t, http.StatusTooManyRequests, answerTo(errors.Join(errMemory)).status)
}

// A call with a long answer waits while the pending answers of its user fill the limit.
func TestALongAnswerWaitsForRoom(t *testing.T) {
	b := newBench(t, "v26.05")
	for i := range 100 {
		b.post(createNamed(fmt.Sprint("m", i)))
	}
	const list = `{"id":1,"method":"bdev_get_bdevs"}`
	require.Equal(t, http.StatusOK, b.post(list).StatusCode, "the proxy now knows that the answer is long")
	slow := &exchange{sender: sender{user: "admin"}, resultBytes: 1} // by answers that arrived after this call was admitted
	slow.reserved = b.proxy.memory.Add("admin", memoryPerUser+2*memoryMargin)
	conn, err := b.proxy.target.Connect(t.Context(), "admin")
	require.NoError(t, err)
	answered := make(chan error)
	go func() {
		_, err := conn.Call(t.Context(), "admin", "bdev_get_bdevs", nil, long)
		answered <- err
	}()
	require.Eventually(t, func() bool { return b.proxy.target.Load().Waiting == 1 }, long, time.Millisecond)
	b.proxy.releaseMemory(slow)
	require.NoError(t, <-answered)
}

// The declared length of a body counts before the body arrives: many slow bodies take no
// more memory than others.
func TestAnnouncedBodiesAreBounded(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(long) })
	s := serve(t, b)
	head := "POST / HTTP/1.1\r\nHost: x\r\n" + asUser("viewer")
	for i := range memoryPerUser / (decodedSize * b.config.Limits.RequestKiB << 10) {
		length := "Content-Length: 262144\r\n\r\n"
		if i%2 == 0 {
			length = "Transfer-Encoding: chunked\r\n\r\n"
		}
		s.dial().send(head + length)
	}
	require.Eventually(t, func() bool {
		b.proxy.memory.mu.Lock()
		defer b.proxy.memory.mu.Unlock()
		return b.proxy.memory.ofUser["viewer"] == memoryPerUser
	}, long, time.Millisecond)
	c := s.dial()
	c.send(head + "Content-Length: 262144\r\n\r\n")
	assert.Equal(t, http.StatusTooManyRequests, c.answer().StatusCode)
	good := s.dial()
	good.call(version)
	assert.Equal(t, http.StatusOK, good.answer().StatusCode)
}

// All memory is released, however a request ends.
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
		b.proxy.memory.mu.Lock()
		defer b.proxy.memory.mu.Unlock()
		return b.proxy.memory.total == 0 && len(b.proxy.memory.ofUser) == 0
	}, long, time.Millisecond)
}
