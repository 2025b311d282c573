package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// answers returns a batch's responses, each formatted as "id code" or "id result".
func (g got) answers(t *testing.T) (list []string) {
	var replies []struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *jsonrpc.Error
	}
	require.NoError(t, json.Unmarshal([]byte(g.body), &replies), g.body)
	for _, r := range replies {
		if r.Error != nil {
			list = append(list, fmt.Sprintf("%s %d", r.ID, r.Error.Code))
		} else {
			list = append(list, fmt.Sprintf("%s %s", r.ID, r.Result))
		}
	}
	return list
}

func createNamed(name string) string {
	return `{"id":"` + name + `","method":"bdev_malloc_create","params":{"name":"` + name + `","num_blocks":64,"block_size":512}}`
}

func TestBatchIsExecutedInOrder(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.post(`[` + createNamed("m0") + `,
		{"id":18446744073709551615,"method":"bdev_malloc_delete","params":{"name":"m0"}},
		{"id":null,"method":"bdev_malloc_delete","params":{"name":"m0"}},
		{"id":1.50,"method":"bdev_malloc_delete","params":{"name":"m0"},"x":1},
		[` + createNamed("nested") + `], 7,
		{"method":"bdev_malloc_create","params":{"name":"m1","num_blocks":64,"block_size":512}},
		{"id":2,"method":"bdev_malloc_delete","params":{"name":"m1"}}]`)
	assert.Equal(t, 200, g.StatusCode)
	assert.Equal(t, "application/json", g.Header.Get("Content-Type"))
	assert.Equal(t, []string{`"m0" "m0"`, "18446744073709551615 true", "null -19", "1.50 -32600", "null -32600", "null -32600", "2 true"}, g.answers(t))

	lines := b.log.Lines(t, "call")
	require.Len(t, lines, 8)
	for i, line := range lines {
		assert.Equal(t, fmt.Sprintf("%d/8", i+1), line["batch"])
		assert.Equal(t, g.Header.Get("X-Request-Id"), line["request_id"])
	}
}

func TestBatchCallsAreDecidedIndividually(t *testing.T) {
	b := newBench(t, "v26.05")
	batch := `[{"id":1,"method":"bdev_get_bdevs"},` + createNamed("m0") + `,{"id":3,"method":"no_such"},{"id":4,"method":"bdev_get_bdevs","params":{"nam":"x"}},{"id":5,"method":"bdev_get_bdevs"}]`
	g := b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(batch))
	assert.Equal(t, 200, g.StatusCode)
	assert.Equal(t, []string{"1 []", `"m0" -32003`, "3 -32601", "4 -32602", "5 []"}, g.answers(t))

	g = b.do("POST", "/", "viewer", "wrong", strings.NewReader(batch))
	assert.Equal(t, 401, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeUnauthorized, g.code(t), "an unauthenticated batch gets one response")
}

func TestBatchOfNotificationsHasNoResponse(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.post(`[{"method":"bdev_malloc_create","params":{"name":"m0","num_blocks":64,"block_size":512}},{"method":"spdk_kill_instance","params":{"x":1}}]`)
	assert.Equal(t, 204, g.StatusCode)
	assert.Empty(t, g.body)
	assert.Equal(t, []string{"1 true"}, b.post(`[{"id":1,"method":"bdev_malloc_delete","params":{"name":"m0"}}]`).answers(t), "it was executed")
}

func TestInvalidBatchIsNotExecutedInPart(t *testing.T) {
	b := newBench(t, "v26.05")
	many := strings.Repeat(createNamed("m0")+",", jsonrpc.MaxBatch)
	for name, c := range map[string]struct {
		batch  string
		status int
	}{
		"truncated":      {`[` + createNamed("m0") + `,`, 400},
		"too many calls": {`[` + many + createNamed("m0") + `]`, 413},
		"followed":       {`[` + createNamed("m0") + `]{}`, 400},
	} {
		g := b.post(c.batch)
		assert.Equal(t, c.status, g.StatusCode, name)
		assert.NotZero(t, g.code(t), name)
	}
	assert.Equal(t, []string{"1 []"}, b.post(`[{"id":1,"method":"bdev_get_bdevs"}]`).answers(t))
}

func TestDocumentedExchangesMatchExactly(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, section := range []string{"Send a call", "Send a batch"} {
		blocks := documented(t, "docs/wire.md", section, "json")
		require.Len(t, blocks, 2, section)
		assert.JSONEq(t, blocks[1], b.post(blocks[0]).body, section)
	}
}

func TestDocumentedHostileInputIsRejected(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.ForgetCalls()
	lines := strings.Split(strings.TrimSpace(documented(t, "docs/wire.md", "Hostile input", "text")[0]), "\n")
	require.Greater(t, len(lines), 5)
	for _, line := range lines {
		var status, code int
		_, err := fmt.Sscan(line, &status, &code)
		require.NoError(t, err, line)
		g := b.post(strings.SplitN(line, " ", 3)[2])
		assert.Equal(t, status, g.StatusCode, line)
		assert.Equal(t, code, g.code(t), line)
	}
	for _, c := range b.target.Calls() {
		assert.Equal(t, "spdk_get_version", c.Method, "the target received only the proxy's own call")
	}
}

// If a batch must end during its first call, its remaining calls are not executed.
func TestInterruptedBatchSkipsItsRemainingCalls(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(*bench, context.CancelFunc)
		status float64
	}{
		"the client disconnects": {func(_ *bench, leave context.CancelFunc) { leave() }, statusClientGone},
		"the proxy stops":        {func(b *bench, _ context.CancelFunc) { b.proxy.gate.Drain() }, 503},
		// The memory for results is limited as documented, however many batches a user sends
		// concurrently.
		"other results exhaust the memory limit": {func(b *bench, _ context.CancelFunc) { b.takeMemory("admin") }, 429},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "v26.05")
			first := createNamed("m0")
			b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 50 * time.Millisecond})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r, err := http.NewRequestWithContext(ctx, "POST", b.http.URL, strings.NewReader(`[`+first+`,`+createNamed("m1")+`]`))
			require.NoError(t, err)
			r.SetBasicAuth("admin", adminPassword)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if resp, err := b.http.Client().Do(r); err == nil {
					_ = resp.Body.Close()
				}
			}()
			require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
			c.end(b, leave)
			<-ended
			require.Eventually(t, func() bool { return len(b.log.Lines(t, "call")) == 2 }, long, time.Millisecond)
			lines := b.log.Lines(t, "call")
			assert.EqualValues(t, 200, lines[0]["status"])
			assert.Equal(t, c.status, lines[1]["status"])
			for _, c := range b.target.Calls() {
				assert.NotContains(t, fmt.Sprint(c), "m1")
			}
		})
	}
}

// A batch can take minutes, in which its user may lose permissions. After a reload that removes
// them, or after the end of the session, the remaining calls are refused.
func TestBatchEndsWithItsUsersPermissions(t *testing.T) {
	const batch = `[{"id":1,"method":"bdev_get_bdevs"},{"id":"m0","method":"bdev_malloc_create","params":{"name":"m0","num_blocks":64,"block_size":512}}]`
	endpoints := map[string]func(s *serving, u *browser) string{
		"POST":    func(s *serving, _ *browser) string { return s.post(batch).body },
		"session": func(_ *serving, u *browser) string { return u.do("POST", "/", batch).body },
		"stream": func(s *serving, _ *browser) string {
			_, text, err := s.stream("admin", adminPassword).send(batch).ws.ReadMessage()
			assert.NoError(s.t, err)
			return string(text)
		},
	}
	events := map[string]func(s *serving, u *browser){
		"reload":   func(s *serving, _ *browser) { require.NoError(s.t, s.proxy.Reload(s.config)) },
		"sign-out": func(_ *serving, u *browser) { u.do("DELETE", "/console/session", "") },
		"neither":  func(*serving, *browser) {},
	}
	for _, c := range []struct{ endpoint, event, want string }{
		{"POST", "neither", `"m0" "m0"`},
		{"POST", "reload", `"m0" -32052`},
		{"stream", "neither", `"m0" "m0"`},
		{"stream", "reload", `"m0" -32052`},
		{"session", "neither", `"m0" "m0"`},
		{"session", "reload", `"m0" -32052`},
		{"session", "sign-out", `"m0" -32001`},
	} {
		t.Run(c.endpoint+", "+c.event, func(t *testing.T) {
			b := newBench(t, "v26.05")
			s, u := serve(t, b), b.browser()
			u.signIn(passwordOf("admin", adminPassword))
			until, answered := make(chan struct{}), make(chan string)
			b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Until: until})
			go func() { answered <- endpoints[c.endpoint](s, u) }()
			require.Eventually(t, func() bool { return b.proxy.target.LoadOf("admin").InFlight > 0 }, long, time.Millisecond)
			events[c.event](s, u)
			close(until)
			assert.Equal(t, []string{"1 []", c.want}, got{body: <-answered}.answers(t))
		})
	}
}
