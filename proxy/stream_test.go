package proxy

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A streamClient is a client that has opened a stream.
type streamClient struct {
	t  *testing.T
	ws *websocket.Conn
}

// A reply is a response on a stream.
type reply struct {
	ID     json.RawMessage
	Method string
	Result json.RawMessage
	Error  *jsonrpc.Error
}

// openStream opens a stream, or returns the response that refuses it.
func (s *serving) openStream(user, password string, header ...string) (*streamClient, *http.Response) {
	h := http.Header{"Authorization": {basicHeader(user, password)}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	dialer := websocket.Dialer{Subprotocols: []string{"jsonrpc"}, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	scheme := "wss"
	if s.config.TLS.InsecurePlaintext {
		scheme = "ws"
	}
	ws, resp, err := dialer.Dial(scheme+"://"+s.addr+"/stream", h)
	if err != nil {
		require.NotNil(s.t, resp, err)
		return nil, resp
	}
	s.t.Cleanup(func() { _ = ws.Close() })
	require.NoError(s.t, ws.SetReadDeadline(time.Now().Add(long)))
	return &streamClient{s.t, ws}, resp
}

func (s *serving) stream(user, password string) *streamClient {
	c, resp := s.openStream(user, password)
	require.NotNil(s.t, c, "%v", resp)
	return c
}

func (c *streamClient) send(text string) *streamClient {
	require.NoError(c.t, c.ws.WriteMessage(websocket.TextMessage, []byte(text)))
	return c
}

func (c *streamClient) next() (r reply) {
	require.NoError(c.t, c.ws.SetReadDeadline(time.Now().Add(long)))
	kind, text, err := c.ws.ReadMessage()
	require.NoError(c.t, err)
	assert.Equal(c.t, websocket.TextMessage, kind)
	require.NoError(c.t, json.Unmarshal(text, &r), string(text))
	return r
}

// closed waits until the server closes the stream, and returns the close code and reason.
func (c *streamClient) closed() (code int, reason string) {
	for {
		_, _, err := c.ws.ReadMessage()
		if err == nil {
			continue
		}
		var closed *websocket.CloseError
		require.ErrorAs(c.t, err, &closed)
		return closed.Code, closed.Text
	}
}

func TestStreamServesCalls(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	assert.Equal(t, "/stream", s.post(version).Header.Get("Spdkgate-Stream"), "the proxy offers streams")
	assert.Empty(t, b.do("POST", "/", "admin", "wrong", strings.NewReader(version)).Header.Get("Spdkgate-Stream"), "not to strangers")
	c, resp := s.openStream("viewer", viewerPassword)
	require.NotNil(t, c)
	assert.Equal(t, "jsonrpc", c.ws.Subprotocol())
	opened := b.lastCall()
	assert.Equal(t, []any{"stream.open", "viewer", "allow"}, []any{opened["method"], opened["user"], opened["decision"]})
	assert.Equal(t, resp.Header.Get("X-Request-Id"), opened["request_id"])

	c.send(`{"id":1,"method":"bdev_get_bdevs"}`)
	assert.Equal(t, "[]", string(c.next().Result))
	first := b.lastCall()
	c.send(createNamed("m0"))
	assert.Equal(t, jsonrpc.CodeForbidden, c.next().Error.Code)
	second := b.lastCall()
	assert.Equal(t, []any{"viewer", "deny", "bdev_malloc_create"}, []any{second["user"], second["decision"], second["method"]})
	assert.NotEqual(t, first["request_id"], second["request_id"], "each message has a separate request ID in the log")
	assert.NotEqual(t, opened["request_id"], first["request_id"])

	c.send(`{"method":"bdev_get_bdevs"}`) // a notification gets no response
	c.send(`{"id":"x"`)
	broken := c.next()
	assert.Equal(t, jsonrpc.CodeParseError, broken.Error.Code)
	assert.Equal(t, "null", string(broken.ID))
	c.send(`[{"id":1,"method":"spdk_get_version"},{"method":"spdk_get_version"},{"id":3,"method":"no_such"}]`)
	_, text, err := c.ws.ReadMessage()
	require.NoError(t, err)
	var batch []reply
	require.NoError(t, json.Unmarshal(text, &batch))
	require.Len(t, batch, 2)
	assert.Equal(t, jsonrpc.CodeMethodNotFound, batch[1].Error.Code)
	require.NoError(t, c.ws.Close())
	require.Eventually(t, func() bool { return b.proxy.streams.Count() == 0 }, long, time.Millisecond)
	b.nothingIsHeld()
}

// Responses arrive in the order in which calls complete.
func TestCallsOnAStreamAreConcurrent(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	c := s.stream("admin", adminPassword)
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 300 * time.Millisecond, Times: 1})
	c.send(createNamed("slow"))
	for i := range 50 {
		c.send(fmt.Sprintf(`{"id":%d,"method":"spdk_get_version"}`, i))
	}
	var ids []string
	for range 51 {
		ids = append(ids, string(c.next().ID))
	}
	assert.Equal(t, `"slow"`, ids[50])
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), 51)
}

// Before the proxy sends a deletion, it makes calls to determine whether the volume is in use.
// These calls do not delay other messages.
func TestCallsByTheProxyDoNotDelayMessages(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Hang})
	s := serve(t, b)
	c := s.stream("admin", adminPassword)
	c.send(`{"id":"slow","method":"bdev_lvol_delete","params":{"name":"lvs0/v"}}`)
	require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
	for range 3 {
		assert.Equal(t, "1", string(c.send(`{"id":1,"method":"bdev_get_iostat"}`).next().ID))
	}
	require.NoError(t, b.target.Close())
	assert.Equal(t, `"slow"`, string(c.next().ID))
}

func TestUnauthorizedStreamsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	for name, c := range map[string]struct {
		user, password string
		header         []string
		status         int
	}{
		"wrong password":         {"admin", "wrong", nil, http.StatusUnauthorized},
		"a page of another site": {"admin", adminPassword, []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"an invalid Origin":      {"admin", adminPassword, []string{"Origin", "null"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			opened, resp := s.openStream(c.user, c.password, c.header...)
			require.Nil(t, opened)
			assert.Equal(t, c.status, resp.StatusCode)
			assert.EqualValues(t, c.status, b.lastCall()["status"])
			assert.Equal(t, "stream.open", b.lastCall()["method"])
		})
	}
	own, _ := s.openStream("admin", adminPassword, "Origin", "http://"+s.addr)
	assert.NotNil(t, own, "a page of this server")
	g := b.do("GET", "/stream", "admin", adminPassword, nil)
	assert.Equal(t, http.StatusUpgradeRequired, g.StatusCode)
	assert.Contains(t, g.body, "POST")
	assert.Equal(t, http.StatusBadRequest, b.do("POST", "/", "admin", adminPassword, strings.NewReader(`{"id":1,"method":"stream.open"}`)).StatusCode, "it is no method")
}

// A session cookie does not open a stream, because a page could not prove that it is the console.
func TestStreamRequiresCredentials(t *testing.T) {
	b := newBench(t, "v26.05")
	u := b.browser()
	u.signIn(passwordOf("admin", adminPassword))
	resp := u.do("GET", "/stream", "", "Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode)
}

func TestStreamsPerUserAreLimited(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.ConnectionsPerSource, c.Limits.Connections = 1000, 1000 })
	s := serve(t, b)
	for range 64 {
		s.stream("admin", adminPassword)
	}
	c, resp := s.openStream("admin", adminPassword)
	require.Nil(t, c)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	s.stream("viewer", viewerPassword)
}

// A revoked user's streams end immediately, even if no messages are sent. Other users keep their
// streams across reloads.
func TestRevokedUsersLoseTheirStreams(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	admin, viewer, active := s.stream("admin", adminPassword), s.stream("viewer", viewerPassword), s.stream("viewer", viewerPassword)
	active.send(version).next()
	changed := *b.config
	changed.Users = slices.Clone(b.config.Users)
	changed.Users[1].PasswordHash = hashes()[adminPassword]
	require.NoError(t, b.proxy.Reload(&changed))
	active.send(version)
	assert.Equal(t, jsonrpc.CodeUnauthorized, active.next().Error.Code)
	code, reason := active.closed()
	assert.Equal(t, websocket.ClosePolicyViolation, code)
	assert.Contains(t, reason, "credentials")
	code, _ = viewer.closed()
	assert.Equal(t, websocket.ClosePolicyViolation, code)
	assert.Nil(t, admin.send(version).next().Error)
	assert.Nil(t, s.stream("viewer", adminPassword).send(version).next().Error)
}

// The removal of a role takes effect with the next message.
func TestReloadAppliesToOpenStreams(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	c := s.stream("viewer", viewerPassword)
	assert.Nil(t, c.send(`{"id":1,"method":"bdev_get_bdevs"}`).next().Error)
	changed := *b.config
	changed.Roles = map[string]config.Role{"viewer": {Allow: rules("spdk_get_version")}}
	require.NoError(t, b.proxy.Reload(&changed))
	assert.Equal(t, jsonrpc.CodeForbidden, c.send(`{"id":1,"method":"bdev_get_bdevs"}`).next().Error.Code)
}

// A stopping proxy notifies its clients, completes running calls, and refuses late messages. The
// errors say that nothing was executed.
func TestStoppingProxyDrainsItsStreams(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Drain = config.Duration(long) })
	s := serve(t, b)
	idle, busy := s.stream("admin", adminPassword), s.stream("admin", adminPassword)
	idle.send(version).next()
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 500 * time.Millisecond})
	busy.send(createNamed("slow"))
	require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
	s.stop()
	assert.Equal(t, "spdkgate.draining", idle.next().Method)
	assert.Equal(t, "spdkgate.draining", busy.next().Method)
	assert.Nil(t, idle.send(version).next().Error, "the client may not have noticed yet that the proxy is stopping")
	b.proxy.gate.RefuseArrivals()
	assert.Equal(t, jsonrpc.CodeDraining, idle.send(version).next().Error.Code)
	assert.Nil(t, busy.next().Error, "the running call ends")
	code, _ := busy.closed()
	assert.Equal(t, websocket.CloseGoingAway, code)
	code, _ = idle.closed()
	assert.Equal(t, websocket.CloseGoingAway, code)
	require.NoError(t, <-s.done)
	assert.Empty(t, b.log.Lines(t, "stopping although calls are still running"))
}

// The proxy asks a client to close its idle stream, so that no call in transit is lost. If the
// client does not close the stream, the proxy disconnects it.
func TestIdleStreamsAreClosed(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Idle = config.Duration(time.Second) })
	s := serve(t, b)
	c := s.stream("admin", adminPassword)
	c.send(version).next()
	for range 2 {
		assert.Equal(t, "spdkgate.draining", c.next().Method)
		assert.Nil(t, c.send(version).next().Error, "a call that crosses with the notification gets a response")
	}
	assert.Equal(t, "spdkgate.draining", c.next().Method)
	code, reason := c.closed()
	assert.Equal(t, websocket.CloseNormalClosure, code)
	assert.Equal(t, "idle", reason)
}

// A message that is not a request, is too long, or arrives too slowly ends the stream, and the
// client receives the reason.
func TestInvalidMessagesEndTheStream(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.Read = config.Duration(200 * time.Millisecond) })
	s := serve(t, b)
	binary := s.stream("admin", adminPassword)
	require.NoError(t, binary.ws.WriteMessage(websocket.BinaryMessage, []byte(version)))
	assert.Equal(t, jsonrpc.CodeInvalidRequest, binary.next().Error.Code)
	code, _ := binary.closed()
	assert.Equal(t, websocket.CloseUnsupportedData, code)

	long := s.stream("admin", adminPassword)
	long.send(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("x", 300<<10) + `"}}`)
	assert.Equal(t, jsonrpc.CodeTooLarge, long.next().Error.Code)
	code, _ = long.closed()
	assert.Equal(t, websocket.CloseMessageTooBig, code)

	slow := s.stream("admin", adminPassword)
	_, err := slow.ws.NetConn().Write([]byte{0x81, 0x85, 0, 0, 0, 0, '{'})
	require.NoError(t, err)
	assert.Equal(t, jsonrpc.CodeInvalidRequest, slow.next().Error.Code)
	code, _ = slow.closed()
	assert.Equal(t, websocket.CloseProtocolError, code)

	rsv := s.stream("admin", adminPassword)
	_, err = rsv.ws.NetConn().Write([]byte{0xf1, 0x80, 0, 0, 0, 0}) // sets reserved bits
	require.NoError(t, err)
	code, _ = rsv.closed()
	assert.Equal(t, websocket.CloseProtocolError, code)
	require.Eventually(t, func() bool { return b.proxy.streams.Count() == 0 }, time.Minute, time.Millisecond)
	b.nothingIsHeld()
}

// The proxy reads messages up to the size limit for bodies, in a single frame or in several frames
// with pings in between.
func TestLongAndFragmentedMessagesAreRead(t *testing.T) {
	b := newBench(t, "v26.05")
	s := serve(t, b)
	c := s.stream("admin", adminPassword)
	pongs := make(chan string, 1)
	c.ws.SetPongHandler(func(data string) error {
		pongs <- data
		return nil
	})
	body := `{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("x", 200<<10) + `"}}`
	w, err := c.ws.NextWriter(websocket.TextMessage)
	require.NoError(t, err)
	for i := 0; i < len(body); i += 10_000 {
		_, err := w.Write([]byte(body[i:min(len(body), i+10_000)]))
		require.NoError(t, err)
		if i == 50_000 {
			require.NoError(t, c.ws.WriteControl(websocket.PingMessage, []byte("still there?"), time.Now().Add(time.Minute)))
		}
	}
	require.NoError(t, w.Close())
	assert.NotNil(t, c.next().Error, "no bdev has such a name")
	assert.Equal(t, "still there?", <-pongs)
	assert.Nil(t, c.send(version).next().Error)
	require.NoError(t, c.ws.Close())
	b.nothingIsHeld()
}

// When a client disconnects, its waiting calls end, and their resources are released.
func TestDisconnectedStreamClientReleasesItsResources(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) { c.Limits.UserInFlight = 1 })
	s := serve(t, b)
	c := s.stream("admin", adminPassword)
	release, err := b.proxy.target.AcquireSlot(t.Context(), "admin")
	require.NoError(t, err)
	c.send(createNamed("never"))
	require.Eventually(t, func() bool { return b.proxy.target.Load().Waiting == 1 }, long, time.Millisecond)
	require.NoError(t, c.ws.NetConn().Close())
	time.Sleep(20 * time.Millisecond) // a call that waits less is executed anyway
	release()
	require.Eventually(t, func() bool { return b.proxy.streams.Count() == 0 }, long, time.Millisecond)
	assert.Empty(t, b.reached())
	b.nothingIsHeld()
}

// Frames of large results and pongs are written completely, without interleaving.
func TestStreamFramesAreNotInterleaved(t *testing.T) {
	b := newBench(t, "v26.05")
	for i := range 300 {
		b.post(createNamed(fmt.Sprint("m", i)))
	}
	s := serve(t, b)
	c := s.stream("admin", adminPassword)
	room := make(chan struct{}, 8) // leaves the user enough memory
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := range 100 {
			room <- struct{}{}
			_ = c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"id":%d,"method":"bdev_get_bdevs"}`, i))
			_ = c.ws.WriteControl(websocket.PingMessage, []byte("x"), time.Now().Add(time.Minute))
		}
	})
	for range 100 {
		assert.Greater(t, len(c.next().Result), 100_000)
		<-room
	}
	sending.Wait()
}
