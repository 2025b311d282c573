package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// local maps this process's OS user to a user of the proxy, and adds a local socket to the
// configuration.
func local(t *testing.T, name string) func(*config.Config) {
	path := filepath.Join(t.TempDir(), "rpc.sock")
	return func(c *config.Config) {
		c.ListenUnix.Path = path
		for i := range c.Users {
			if c.Users[i].Name == name {
				c.Users[i].Local = &config.Local{Users: []string{strconv.Itoa(os.Getuid())}}
			}
		}
	}
}

// serveLocally is like serve, but for a bench with a local socket.
func serveLocally(t *testing.T, b *bench) *serving {
	l, err := b.proxy.Listen()
	require.NoError(t, err)
	u, err := b.proxy.ListenLocal()
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	s := &serving{bench: b, addr: l.Addr().String(), stop: stop, done: make(chan error, 1)}
	go func() { s.done <- b.proxy.Serve(ctx, l, u) }()
	t.Cleanup(stop)
	return s
}

// A program is a client of the local socket.
type program struct {
	t *testing.T
	*net.UnixConn
	dec *json.Decoder
}

func (s *serving) program() *program {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.config.ListenUnix.Path, Net: "unix"})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	require.NoError(s.t, c.SetDeadline(time.Now().Add(long)))
	return &program{s.t, c, json.NewDecoder(c)}
}

func (p *program) send(text string) *program {
	_, _ = io.WriteString(p, text) // the proxy may have closed the connection
	return p
}

type localAnswer struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *jsonrpc.Error
}

func (a localAnswer) code() int {
	if a.Error == nil {
		return 0
	}
	return a.Error.Code
}

func (p *program) answer() (a localAnswer) {
	p.t.Helper()
	require.NoError(p.t, p.dec.Decode(&a))
	return a
}

func (p *program) answered(id string, code int) localAnswer {
	p.t.Helper()
	a := p.answer()
	assert.Equal(p.t, id, string(a.ID))
	assert.Equal(p.t, code, a.code(), "%v", a.Error)
	return a
}

func (p *program) closed() {
	p.t.Helper()
	rest, err := io.ReadAll(io.MultiReader(p.dec.Buffered(), p))
	assert.True(p.t, err == nil || errors.Is(err, syscall.ECONNRESET), "%v", err)
	assert.Empty(p.t, strings.TrimSpace(string(rest)))
}

func TestLocalCallsReceiveResponses(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "viewer"))
	p := serveLocally(t, b).program()
	assert.Contains(t, string(p.send(version).answered("1", 0).Result), "SPDK v26.05")
	p.send(`{"jsonrpc":"2.0","id":"a\"","method":"bdev_get_bdevs","params":{"name":"none"}}`).answered(`"a\""`, -19)
	p.send(`{"id":2,"method":"bdev_get_bdevs","params":{"nam":"none"}}`).answered("2", jsonrpc.CodeInvalidParams)
	p.send(`{"id":3,"method":"nosuch_get_thing"}`).answered("3", jsonrpc.CodeMethodNotFound)
	refused := p.send(strings.Replace(createMalloc, `"id":1`, `"id":4`, 1)).answered("4", jsonrpc.CodeForbidden)
	assert.Contains(t, refused.Error.Message, "this user may not make this call")
	assert.NotContains(t, b.reached(), "bdev_malloc_create")
	p.send(`{"id":5,"method":"rpc.discover"}`).answered("5", 0)

	lines := b.log.Lines(t, "call")
	require.Len(t, lines, 6)
	for _, line := range lines {
		assert.Equal(t, "viewer", line["user"])
		assert.Equal(t, "peer", line["auth"])
		assert.Equal(t, fmt.Sprintf("uid %d", os.Getuid()), line["credential"])
		assert.Equal(t, fmt.Sprintf("unix:uid=%d,pid=%d", os.Getuid(), os.Getpid()), line["source"])
	}
	assert.Equal(t, "deny", lines[4]["decision"])
	assert.EqualValues(t, 403, lines[4]["status"])
}

func TestLocalMessagesFollowSPDKsProtocol(t *testing.T) {
	s := serveLocally(t, newBench(t, "v26.05", local(t, "admin")))
	const after = `{"id":99,"method":"spdk_get_version"}`
	for text, want := range map[string]struct {
		id   string
		code int
	}{
		"\n\n  " + version + "\n": {"1", 0},
		`{"jsonrpc":"2.0","id":1,"method":"spdk_get_version","params":null}`: {"1", 0},
		`{"jsonrpc":"2.0","id":1.50,"method":"spdk\u005fget_version"}`:       {"1.50", 0},
		`{"id":18446744073709551616,"method":"spdk_get_version"}`:            {"18446744073709551616", 0},
		`{"id":null,"method":"nosuch"}`:                                      {"null", jsonrpc.CodeMethodNotFound},
		`{"method":"nosuch"}`:                                                {"null", jsonrpc.CodeMethodNotFound},
		`{"id":1}`:                                                           {"1", jsonrpc.CodeInvalidRequest},
		`{"id":1,"method":5}`:                                                {"1", jsonrpc.CodeInvalidRequest},
		`{"id":[],"method":"spdk_get_version"}`:                              {"null", jsonrpc.CodeInvalidRequest},
		`{"id":1,"Method":"spdk_get_version"}`:                               {"1", jsonrpc.CodeInvalidRequest},
		`{"id":1,"method":"bdev_get_bdevs","params":"x"}`:                    {"1", jsonrpc.CodeInvalidRequest},
		`{"id":1,"method":"bdev_get_bdevs","params":["x"]}`:                  {"1", jsonrpc.CodeInvalidParams},
		"[]": {"null", jsonrpc.CodeInvalidRequest},
	} {
		p := s.program().send(text)
		p.answered(want.id, want.code)
		p.send(after).answered("99", 0)
	}
	for _, quiet := range []string{`{"method":"spdk_get_version"}`, `{"id":null,"method":"spdk_get_version"}`, `[{"method":"spdk_get_version"}]`} {
		s.program().send(quiet+after).answered("99", 0)
	}
	for text, code := range map[string]int{
		"garbage": jsonrpc.CodeInvalidRequest, "5": jsonrpc.CodeInvalidRequest, "GET / HTTP/1.1\r\n\r\n": jsonrpc.CodeInvalidRequest, "}": jsonrpc.CodeInvalidRequest,
		"\x00" + version: jsonrpc.CodeInvalidRequest, "// c\n" + version: jsonrpc.CodeInvalidRequest,
		`{'a':1}`: jsonrpc.CodeParseError, `{"a":tru}`: jsonrpc.CodeParseError, `{"a":1]`: jsonrpc.CodeParseError, "{\"a\":\"\xff\"}": jsonrpc.CodeParseError, `{"a":01}`: jsonrpc.CodeParseError,
		`{"id":1,"id":2,"method":"spdk_get_version"}`:                                                  jsonrpc.CodeParseError,
		`{"id":1,"method":"m","params":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 65): jsonrpc.CodeTooLarge,
		"[" + strings.Repeat(version+",", jsonrpc.MaxBatch) + version + "]":                            jsonrpc.CodeTooLarge,
	} {
		p := s.program().send(text + after)
		p.answered("null", code)
		p.closed() // the proxy cannot determine where the next message begins
	}
	p := s.program().send(version + "garbage")
	codes := map[string]int{}
	for range 2 {
		a := p.answer()
		codes[string(a.ID)] = a.code()
	}
	assert.Equal(t, map[string]int{"1": 0, "null": jsonrpc.CodeInvalidRequest}, codes, "the valid call also gets a response")
	p.closed()
}

func TestLocalConnectionServesSeveralCalls(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	s := serveLocally(t, b)
	p := s.program()
	for _, part := range version {
		p.send(string(part))
	}
	p.answered("1", 0)

	// Responses arrive in the order in which the calls complete.
	b.target.Inject(spdktest.Fault{Method: "bdev_get_iostat", Delay: 100 * time.Millisecond})
	p.send(`{"id":1,"method":"bdev_get_iostat"}` + strings.Replace(version, "1", "2", 1))
	p.answered("2", 0)
	p.answered("1", 0)

	const many = 3000
	go p.send(strings.Repeat(version, many))
	for range many {
		p.answered("1", 0)
	}
	require.NoError(t, p.Close())
	b.nothingIsHeld()
}

// Calls on a connection start in the order in which they arrive, although the proxy has to query
// the target before some of them.
func TestLocalCallsStartInOrder(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	p := serveLocally(t, b).program()
	const rounds = 100
	var text strings.Builder
	for i := range rounds {
		fmt.Fprintf(&text, `{"id":%d,"method":"bdev_malloc_create","params":{"name":"m%d","num_blocks":2048,"block_size":512}}`, 3*i, i)
		fmt.Fprintf(&text, `{"id":%d,"method":"bdev_get_bdevs","params":{"name":"m%d"}}`, 3*i+1, i)
		fmt.Fprintf(&text, `{"id":%d,"method":"bdev_malloc_delete","params":{"name":"m%d"}}`, 3*i+2, i)
	}
	go p.send(text.String())
	for range 3 * rounds {
		a := p.answer()
		require.Nil(t, a.Error)
	}
	reached := b.reached()
	require.Len(t, reached, 3*rounds)
	for i := range rounds {
		require.Equal(t, []string{"bdev_malloc_create", "bdev_get_bdevs", "bdev_malloc_delete"}, reached[3*i:3*i+3])
	}
}

func TestLocalBatchReceivesOneResponsePerCall(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		b := newBench(t, release, local(t, "admin"))
		p := serveLocally(t, b).program()
		p.send("[" + version + `,{"id":2,"method":"nosuch"},5,{"method":"spdk_get_version"},{"method":"nosuch"}]` + strings.Replace(version, "1", "3", 1))
		var list []localAnswer
		require.NoError(t, p.dec.Decode(&list))
		require.Len(t, list, 4)
		for i, want := range []struct {
			id   string
			code int
		}{{"1", 0}, {"2", jsonrpc.CodeMethodNotFound}, {"null", jsonrpc.CodeInvalidRequest}, {"null", jsonrpc.CodeMethodNotFound}} {
			assert.Equal(t, want.id, string(list[i].ID))
			assert.Equal(t, want.code, list[i].code())
		}
		p.answered("3", 0)
		lines := b.log.Lines(t, "call")
		require.Len(t, lines, 6)
		assert.Equal(t, "2/5", lines[1]["batch"])
	}
}

// A client that has closed its sending side still receives its responses.
func TestHalfClosedLocalClientGetsItsResponses(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	p := serveLocally(t, b).program()
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 50 * time.Millisecond})
	p.send(createMalloc + version[:10])
	require.NoError(t, p.CloseWrite())
	p.answered("1", 0)
	p.closed()
}

// If a client disconnects while its call waits for a slot, the call is not executed.
func TestWaitingCallOfDisconnectedLocalClientIsDropped(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"), func(c *config.Config) { c.Limits.UserInFlight = 1 })
	gone := make(chan struct{})
	b.target.Inject(spdktest.Fault{Method: "bdev_get_iostat", Until: gone})
	s := serveLocally(t, b)
	s.program().send(`{"id":1,"method":"bdev_get_iostat"}`)
	require.Eventually(t, func() bool { return b.proxy.target.Loads()["admin"].InFlight == 1 }, long, time.Millisecond)
	p := s.program().send(createMalloc)
	require.Eventually(t, func() bool { return b.proxy.target.Load().Waiting == 1 }, long, time.Millisecond)
	time.Sleep(2 * 10 * time.Millisecond) // the proxy checks calls only after 10 ms
	require.NoError(t, p.Close())
	close(gone)
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "call")) == 2 }, long, time.Millisecond)
	status := map[any]any{} // the order of the two lines varies, because a call releases its slot before it is logged
	for _, line := range b.log.Lines(t, "call") {
		status[line["method"]] = line["status"]
	}
	assert.Equal(t, map[any]any{"bdev_get_iostat": 200.0, "bdev_malloc_create": float64(statusClientGone)}, status)
	assert.NotContains(t, b.reached(), "bdev_malloc_create")
}

func TestLocalCallsRunConcurrently(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	s := serveLocally(t, b)
	var all sync.WaitGroup
	for i := range 100 {
		p := s.program()
		all.Go(func() {
			name := fmt.Sprintf("m%d", i)
			p.send(`{"id":1,"method":"bdev_malloc_create","params":{"name":"` + name + `","num_blocks":2048,"block_size":512}}`)
			assert.Equal(t, `"`+name+`"`, string(p.answer().Result))
			_ = p.Close()
		})
	}
	all.Wait()
	assert.Len(t, b.reached(), 100)
	b.nothingIsHeld()
}

func TestLocalConnectionsDrain(t *testing.T) {
	b := newBench(t, "v26.05", local(t, "admin"))
	s := serveLocally(t, b)
	path := b.config.ListenUnix.Path
	info, err := os.Lstat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSocket|0o660, info.Mode())
	idle, slow, fresh := s.program(), s.program(), s.program()
	idle.send(version).answered("1", 0)
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 300 * time.Millisecond})
	slow.send(createMalloc)
	require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
	s.stop()
	require.Eventually(t, b.proxy.gate.Draining, long, time.Millisecond)
	_, err = os.Lstat(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	fresh.send(version).answered("1", 0)
	b.proxy.gate.RefuseArrivals()
	assert.Contains(t, fresh.send(version).answered("1", jsonrpc.CodeDraining).Error.Message, "Nothing was executed")
	slow.answered("1", 0)
	require.NoError(t, <-s.done)
	for _, p := range []*program{idle, slow, fresh} {
		p.closed()
	}
}
