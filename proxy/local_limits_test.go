package proxy

import (
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/auditlog"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// If no rule matches a local user, each response is an error with the request's id. A reload also
// affects open connections.
func TestUnknownLocalUsersAreRefused(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "nobody"))
	s := serveLocally(t, b)
	p := s.program().send(version)
	refused := p.answered("1", jsonrpc.CodeUnauthorized)
	assert.Equal(t, fmt.Sprintf("authentication failed: no user of this proxy has your uid (%d) or one of your groups: ask the administrator of this proxy to add it to local in the configuration", os.Getuid()), refused.Error.Message)
	p.send("[" + version + "," + version + "]")
	var list []localAnswer
	require.NoError(t, p.dec.Decode(&list))
	assert.Equal(t, []int{jsonrpc.CodeUnauthorized, jsonrpc.CodeUnauthorized}, []int{list[0].code(), list[1].code()})
	s.program().send(`{"id":1,"method":"`+strings.Repeat("x", 4096)).answered("null", jsonrpc.CodeUnauthorized)
	for range 20 {
		s.program().send(version).answered("1", jsonrpc.CodeUnauthorized)
	}
	assert.Len(t, b.log.Lines(t, "call"), 10, "they share lines")
	assert.Equal(t, "unauthenticated", b.lastCall()["decision"])
	assert.Empty(t, b.reached())

	with := *b.config
	with.Users = append([]config.User{}, b.config.Users...)
	with.Users[1].Local = &config.Local{Groups: []string{strconv.Itoa(os.Getgid())}}
	require.NoError(t, b.proxy.Reload(&with))
	p.send(version).answered("1", 0)
	assert.Equal(t, "viewer", b.lastCall()["user"])
	assert.Equal(t, fmt.Sprintf("uid %d, gid %d", os.Getuid(), os.Getgid()), b.lastCall()["credential"])
	require.NoError(t, b.proxy.Reload(b.config))
	p.send(version).answered("1", jsonrpc.CodeUnauthorized)

	with.ListenUnix.Mode = "0666"
	require.ErrorContains(t, b.proxy.Reload(&with), "listen_unix has changed")
}

// The messages of a client, and the memory that they occupy, are limited.
func TestLocalClientsAreLimited(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"), func(c *config.Config) {
		c.Limits.RequestKiB, c.Limits.Read, c.ListenUnix.Idle = 16, config.Duration(50*time.Millisecond), config.Duration(100*time.Millisecond)
		c.Limits.ConnectionsPerSource = 5
	})
	s := serveLocally(t, b)
	sized := func(n int) string {
		const head, tail = `{"id":1,"method":"bdev_get_bdevs","params":{"name":"`, `"}}`
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	p := s.program().send(sized(16 << 10))
	p.answered("1", -19)
	p.send(sized(16<<10+1)).answered("null", jsonrpc.CodeTooLarge)
	p.closed()
	p = s.program().send("[" + strings.Repeat(" ", 20<<10))
	p.answered("null", jsonrpc.CodeTooLarge)
	p.closed()

	p = s.program().send(version[:20])
	assert.Contains(t, p.answered("null", jsonrpc.CodeInvalidRequest).Error.Message, "did not arrive in time")
	p.closed()
	s.program().closed() // idle connections are closed

	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 300 * time.Millisecond})
	s.program().send(createMalloc).answered("1", 0) // a connection in use stays open

	b.target.Inject(spdktest.Fault{Method: "bdev_get_iostat", Do: spdktest.Hang, Times: -1})
	require.Eventually(t, func() bool { return b.proxy.clients.Open() == 0 }, long, time.Millisecond)
	for range 5 {
		s.program().send(`{"id":1,"method":"bdev_get_iostat"}`)
	}
	require.Eventually(t, func() bool { return b.inFlight() == 5 }, long, time.Millisecond)
	s.program().closed()
	c := s.dial()
	c.call(version)
	assert.Equal(t, 200, c.answer().StatusCode, "the limit is that of one user of this host")
	_, total := b.proxy.gate.MemoryInUse("")
	assert.Less(t, total, 16<<10)
}

// A client that does not read its responses is disconnected, and does not delay other clients.
func TestLocalClientsThatDoNotReadAreDisconnected(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	s := serveLocally(t, b)
	slow := s.program()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 2000 {
			slow.send(`{"id":1,"method":"rpc_get_methods"}`)
		}
	}()
	require.Eventually(t, func() bool { return b.log.Count(`"method":"rpc_get_methods"`) > 20 }, long, time.Millisecond)
	p := s.program()
	for range 100 {
		p.send(version).answered("1", 0)
	}
	s.stop()
	require.NoError(t, slow.Close())
	require.NoError(t, <-s.done)
	<-sent
	b.nothingIsHeld()
}

// A panic during a call closes only that client's connection, and releases its resources.
func TestLocalPanicClosesOneConnection(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	log := &panickingLog{config.NewLogger(b.log, config.Log{Format: "json", Level: slog.LevelInfo}).Handler(), "call"}
	b.proxy.gate.AuditLog = auditlog.New(slog.New(log), b.proxy.gate.Schema)
	s := serveLocally(t, b)
	other := s.program()
	for range 2 {
		s.program().send(createMalloc).closed()
	}
	lines := b.log.Lines(t, "panic")
	require.Len(t, lines, 2)
	assert.Contains(t, lines[0]["stack"], "stream/conn.go")
	other.send("5").closed()
	b.nothingIsHeld()
	s.stop()
	require.NoError(t, <-s.done)
}

// nothingIsHeld waits until no memory is reserved, and no connections or calls are counted.
func (b *bench) nothingIsHeld() {
	require.Eventually(b.t, func() bool {
		_, total := b.proxy.gate.MemoryInUse("")
		open, running := b.proxy.gate.Counts()
		return total == 0 && open == 0 && running == 0 && b.proxy.clients.Open() == 0
	}, long, time.Millisecond)
}
