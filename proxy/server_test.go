package proxy

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

func TestCallsReturnTheDocumentedResponses(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.post(createMalloc)
	assert.Equal(t, 200, g.StatusCode)
	assert.Equal(t, `{"jsonrpc":"2.0","id":1,"result":"m0"}`+"\n", g.body)
	assert.Equal(t, "application/json", g.Header.Get("Content-Type"))
	assert.Regexp(t, "^[0-9a-f]{16}$", g.Header.Get("X-Request-Id"))

	for _, id := range []string{`"a\"b"`, `"<&>"`, `18446744073709551616`, `1.50`, `-0`, `null`, `""`} {
		g = b.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"bdev_get_bdevs","params":{"name":"m0"}}`)
		assert.Equal(t, 200, g.StatusCode)
		assert.True(t, strings.HasPrefix(g.body, `{"jsonrpc":"2.0","id":`+id+`,"result":[{`), g.body)
	}

	g = b.post(`{"id":7,"method":"bdev_get_bdevs","params":{"name":"none"}}`)
	assert.Equal(t, 200, g.StatusCode, "SPDK's own errors have status 200")
	assert.Equal(t, `{"jsonrpc":"2.0","id":7,"error":{"code":-19,"message":"No such device"}}`+"\n", g.body)
}

func TestNotificationsHaveNoResponse(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.post(strings.Replace(createMalloc, `"id":1,`, "", 1))
	assert.Equal(t, 204, g.StatusCode)
	assert.Empty(t, g.body)
	assert.Equal(t, []string{"bdev_malloc_create"}, b.reached(), "executed")

	// fails, because the bdev already exists
	g = b.post(strings.Replace(createMalloc, `"id":1,`, "", 1))
	assert.Equal(t, 204, g.StatusCode)
	assert.EqualValues(t, -17, b.lastCall()["code"])

	g = b.post(`{"method":"bdev_malloc_crate"}`)
	assert.Equal(t, 400, g.StatusCode, "a call that is not executed gets a response")
}

// Each kind of invalid input leads to the documented status, code and message.
func TestInvalidInputIsRejected(t *testing.T) {
	b := newBench(t, "v26.05")
	for name, c := range map[string]struct {
		body         string
		status, code int
		says         string
	}{
		"malformed JSON":                       {`{"id":1,"method":`, 400, -32700, "ends too early"},
		"nothing":                              {``, 400, -32700, "empty"},
		"duplicate members":                    {`{"id":1,"method":"spdk_get_version","method":"spdk_kill_instance"}`, 400, -32700, "/method occurs twice"},
		"duplicate parameters":                 {`{"id":1,"method":"bdev_get_bdevs","params":{"name":"a","name":"b"}}`, 400, -32700, "/params/name occurs twice"},
		"wrong case":                           {`{"id":1,"Method":"spdk_get_version"}`, 400, -32600, `unknown member \"Method\"`},
		"both letter cases":                    {`{"id":1,"method":"spdk_get_version","METHOD":"spdk_kill_instance"}`, 400, -32600, "unknown member"},
		"method in capitals":                   {`{"id":1,"method":"SPDK_GET_VERSION"}`, 400, -32601, "unknown method"},
		"unknown method":                       {`{"id":1,"method":"bdev_lvol_crate"}`, 400, -32601, "did you mean bdev_lvol_create?"},
		"empty batch":                          {`[]`, 400, -32600, "the batch is empty"},
		"two batches":                          {`[{"id":1,"method":"spdk_get_version"}][{"id":2,"method":"spdk_get_version"}]`, 400, -32700, "more than one"},
		"two requests":                         {`{"id":1,"method":"spdk_get_version"}{"id":2,"method":"spdk_kill_instance"}`, 400, -32700, "more than one"},
		"params by position":                   {`{"id":1,"method":"bdev_get_bdevs","params":["m0"]}`, 400, -32602, "by position"},
		"unknown parameter":                    {`{"id":1,"method":"bdev_get_bdevs","params":{"nam":"m0"}}`, 400, -32602, "/nam: bdev_get_bdevs has no such parameter: did you mean name?"},
		"parameter in a different letter case": {`{"id":1,"method":"bdev_get_bdevs","params":{"Name":"m0"}}`, 400, -32602, "did you mean name?"},
		"parameter of a wrong type":            {`{"id":1,"method":"bdev_get_bdevs","params":{"name":7}}`, 400, -32602, "/name: must be string, not number"},
		"missing parameter":                    {`{"id":1,"method":"bdev_malloc_create","params":{"num_blocks":1}}`, 400, -32602, "/block_size: is required"},
		"an old and a new parameter":           {`{"id":1,"method":"bdev_lvol_resize","params":{"name":"a","size":1,"size_in_mib":1}}`, 400, -32602, "give only size_in_mib"},
		"300 KiB":                              {`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("x", 300<<10) + `"}}`, 413, jsonrpc.CodeTooLarge, "256 KiB"},
		"too many values":                      {`{"id":1,"method":"bdev_get_bdevs","params":{"name":[` + strings.Repeat("0,", 9000) + `0]}}`, 413, jsonrpc.CodeTooLarge, "8192 values"},
		"nested too deeply":                    {`{"id":1,"method":"bdev_get_bdevs","params":{"name":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `}}`, 413, jsonrpc.CodeTooLarge, "nesting"},
	} {
		t.Run(name, func(t *testing.T) {
			b.t = t
			g := b.post(c.body)
			assert.Equal(t, c.status, g.StatusCode, g.body)
			assert.Equal(t, c.code, g.code(t))
			assert.Contains(t, g.body, c.says)
			assert.Equal(t, "application/json", g.Header.Get("Content-Type"))
			line := b.lastCall()
			assert.EqualValues(t, c.status, line["status"])
			assert.EqualValues(t, c.code, line["code"])
			assert.Equal(t, g.Header.Get("X-Request-Id"), line["request_id"])
		})
	}
	assert.Empty(t, b.reached(), "nothing must reach SPDK")
	b.t = t
	assert.Equal(t, 200, b.post(createMalloc).StatusCode)
}

func TestErrorsContainTheRequestID(t *testing.T) {
	b := newBench(t, "v26.05")
	assert.Contains(t, b.post(`{"id":"x7","method":"nope"}`).body, `"id":"x7"`)
	assert.Contains(t, b.post(`{"id":"x7","method":"bdev_get_bdevs","params":[]}`).body, `"id":"x7"`)
	assert.Contains(t, b.post(`{"id":"x7",`).body, `"id":null`)
}

func TestMethodNotFoundFromSPDKIsReturned(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "bdev_get_bdevs", Do: spdktest.Fail, Error: jsonrpc.Errorf(-32601, "Method not found")})
	g := b.post(`{"id":1,"method":"bdev_get_bdevs"}`)
	assert.Equal(t, 200, g.StatusCode)
	assert.Contains(t, g.body, `{"code":-32601,"message":"Method not found"}`)
}

func TestUnauthenticatedCallsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	for name, c := range map[string][2]string{
		"nobody": {"", ""}, "wrong password": {"admin", "wrong"}, "unknown": {"eve", adminPassword}, "another's password": {"viewer", adminPassword},
	} {
		for _, body := range []string{createMalloc, `{"id":1,"method":"nope"}`, `{`, strings.Repeat("x", 300<<10)} {
			g := b.do("POST", "/", c[0], c[1], strings.NewReader(body))
			assert.Equal(t, 401, g.StatusCode, name)
			assert.Equal(t, `Basic realm="spdk-proxy", charset="UTF-8"`, g.Header.Get("WWW-Authenticate"))
			assert.Equal(t, jsonrpc.CodeUnauthorized, g.code(t))
			assert.NotContains(t, g.body, "nope")
			line := b.lastCall()
			assert.Equal(t, "unauthenticated", line["decision"])
			assert.Equal(t, "", line["method"], "the call was not parsed")
		}
	}
	assert.Empty(t, b.reached())
}

func TestTooManyFailedLoginsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	var g got
	for range 11 {
		g = b.do("POST", "/", "admin", "wrong", strings.NewReader(createMalloc))
	}
	assert.Equal(t, 429, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeTooManyLogins, g.code(t))
	assert.NotEmpty(t, g.Header.Get("Retry-After"))
	assert.Equal(t, 200, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"spdk_get_version"}`)).StatusCode)
}

func TestForbiddenCallsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc))
	assert.Equal(t, 403, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeForbidden, g.code(t))
	line := b.lastCall()
	assert.Equal(t, "deny", line["decision"])
	assert.Equal(t, "no rule allows it", line["rule"])
	assert.Equal(t, "viewer", line["user"])
	assert.Equal(t, "bdev_malloc_create", line["method"])
	assert.Empty(t, b.reached())

	g = b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"bdev_malloc_create","params":{"wrong":1}}`))
	assert.Equal(t, 403, g.StatusCode, "a refused user learns nothing about parameters")

	g = b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(`{"id":1,"method":"bdev_get_bdevs"}`))
	assert.Equal(t, 200, g.StatusCode)
	assert.Equal(t, "role viewer: allow *_get_*", b.lastCall()["rule"])
}

func TestRolesApplyToDeprecatedNames(t *testing.T) {
	b := newBench(t, "v26.05", func(c *config.Config) {
		c.Roles["viewer"] = config.Role{Allow: rules("*"), Deny: rules("bdev_lvol_get_lvstores")}
	})
	request := `{"id":1,"method":"get_lvol_stores"}`
	assert.Equal(t, 403, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(request)).StatusCode)
	assert.Equal(t, 200, b.post(request).StatusCode)
	assert.Equal(t, []string{"bdev_lvol_get_lvstores"}, b.reached())
}

// SPDK receives a new encoding of the parameters that package policy has checked, not the client's
// bytes.
func TestForwardedParametersAreReencoded(t *testing.T) {
	b := newBench(t, "v26.05")
	b.post(createMalloc)
	b.target.ForgetCalls()
	g := b.post(" {\n\t\"params\" : { \"n\\u0061me\" : \"m\\u0030\" } , \"id\":1e0, \"method\":\"bdev_get\\u005fbdevs\" } \n")
	assert.Equal(t, 200, g.StatusCode, g.body)
	assert.Contains(t, g.body, `"id":1e0`)
	calls := b.target.Calls()
	require.Len(t, calls, 1)
	assert.Equal(t, map[string]any{"name": "m0"}, calls[0].Params)
}

// If a call has no parameters, some SPDK methods require {} and others reject it. Clients may send
// either form.
func TestCallsWithoutParametersFitTheMethod(t *testing.T) {
	b := newBench(t, "v26.05")
	assert.Equal(t, 200, b.post(`{"id":1,"method":"bdev_lvol_get_lvstores"}`).StatusCode)
	assert.Equal(t, 200, b.post(`{"id":1,"method":"bdev_lvol_get_lvstores","params":null}`).StatusCode)
	for _, params := range []string{"", `,"params":null`, `,"params":{}`} {
		for _, method := range []string{"bdev_lvol_get_lvstores", "spdk_get_version", "iscsi_set_discovery_auth", "bdev_get_bdevs"} {
			g := b.post(`{"id":1,"method":"` + method + `"` + params + `}`)
			assert.Contains(t, g.body, `"result":`, "%s %s", method, params)
		}
	}
}

func TestOldAndNewCallsAreTranslatedForEachRelease(t *testing.T) {
	create := func(size string) string {
		return `{"id":1,"method":"bdev_lvol_create","params":{"lvol_name":"v","lvs_name":"none",` + size + `}}`
	}
	for release, c := range map[string]struct{ sends, gets string }{
		"v26.05": {`"size":10485761`, "size_in_mib"},
		"v23.01": {`"size_in_mib":11`, "size"},
	} {
		b := newBench(t, release)
		g := b.post(create(c.sends))
		assert.Equal(t, 200, g.StatusCode, g.body)
		assert.Contains(t, g.body, `"code":-19`, "SPDK accepted the parameters: it looked for the lvstore")
		calls := b.target.Calls()
		last := calls[len(calls)-1]
		require.Equal(t, "bdev_lvol_create", last.Method)
		assert.Contains(t, last.Params, c.gets)
		assert.NotEmpty(t, b.lastCall()["translated"])
	}
}

func TestMethodMissingFromReleaseIsReported(t *testing.T) {
	b := newBench(t, "v23.01")
	g := b.post(`{"id":1,"method":"bdev_lvol_get_lvols"}`)
	assert.Equal(t, 400, g.StatusCode)
	assert.Equal(t, -32601, g.code(t))
	assert.Contains(t, g.body, "SPDK v23.05 and later, but the target runs v23.01")
}

func TestOldTargetLimitsAreRespected(t *testing.T) {
	b := newBench(t, "v24.01")
	g := b.post(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("x", 33<<10) + `"}}`)
	assert.Equal(t, 413, g.StatusCode)
	assert.Equal(t, 200, b.post(createMalloc).StatusCode)
}

func TestUnreachableTargetIsReported(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Crash()
	g := b.post(createMalloc)
	assert.Equal(t, 502, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeUnreachable, g.code(t))
	assert.NotContains(t, g.body, b.target.Socket(), "only the log contains the path")
	assert.Contains(t, b.lastCall()["error"], b.target.Socket())

	require.NoError(t, b.target.Restart())
	require.Eventually(t, func() bool { return b.post(createMalloc).StatusCode == 200 }, long, time.Millisecond)
}

func TestUnknownOutcomeIsReported(t *testing.T) {
	for name, fault := range map[string]spdktest.Fault{
		"no response": {Do: spdktest.Hang}, "executed, no response": {Do: spdktest.Hang, Executed: true},
		"connection closed": {Do: spdktest.Close}, "crash": {Do: spdktest.Crash, Executed: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "v26.05", func(c *config.Config) {
				c.Target.Timeouts.Methods = map[string]config.Duration{"bdev_malloc_create": config.Duration(50 * time.Millisecond)}
			})
			fault.Method = "bdev_malloc_create"
			b.target.Inject(fault)
			g := b.post(createMalloc)
			assert.Equal(t, 504, g.StatusCode, g.body)
			assert.Equal(t, jsonrpc.CodeOutcomeUnknown, g.code(t))
			assert.Contains(t, g.body, "Check the state")
		})
	}
}

func TestBrokenConnectionIsReplaced(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Do: spdktest.Close})
	assert.Equal(t, 504, b.post(createMalloc).StatusCode)
	assert.Equal(t, 200, b.post(createMalloc).StatusCode)
}

func TestResponsesMatchTheirCalls(t *testing.T) {
	b := newBench(t, "v26.05")
	for i := range 16 {
		b.post(fmt.Sprintf(`{"id":1,"method":"bdev_malloc_create","params":{"name":"m%d","num_blocks":2048,"block_size":512}}`, i))
	}
	var clients sync.WaitGroup
	for client := range 16 {
		clients.Go(func() {
			for n := range 30 {
				id := fmt.Sprint(client*1000 + n)
				g := b.post(fmt.Sprintf(`{"id":%s,"method":"bdev_get_bdevs","params":{"name":"m%d"}}`, id, client))
				assert.Contains(t, g.body, `"id":`+id+`,`)
				assert.Contains(t, g.body, fmt.Sprintf(`"name":"m%d"`, client))
			}
		})
	}
	clients.Wait()
}

func TestUnsupportedPathsAndMethodsAreRefused(t *testing.T) {
	b := newBench(t, "v26.05")
	for _, c := range []struct {
		method, path string
		status       int
		says, allow  string
	}{
		{"POST", "/", 200, `"result":`, ""},
		{"POST", "/spdk/rpc", 200, `"result":`, ""}, // as with rpc_http_proxy.py
		{"POST", "//", 200, `"result":`, ""},
		{"POST", "/?x=1", 200, `"result":`, ""},
		{"GET", "/", 405, "by POST to /", "POST, HEAD"},
		{"PUT", "/", 405, "by POST to /", "POST, HEAD"},
		{"GET", "/else", 404, "POST JSON-RPC requests to /", ""},
		{"DELETE", "/else", 404, "POST JSON-RPC requests to /", ""},
		{"HEAD", "/", 200, "", ""}, // as with rpc_http_proxy.py
		{"GET", "/healthz", 200, "ok", ""},
		{"HEAD", "/healthz", 200, "", ""},
		{"POST", "/healthz", 405, "GET, HEAD", "GET, HEAD"},
		{"GET", "/readyz", 200, "ready", ""},
		{"POST", "/readyz", 405, "GET, HEAD", "GET, HEAD"},
	} {
		g := b.do(c.method, c.path, "admin", adminPassword, strings.NewReader(`{"id":1,"method":"spdk_get_version"}`))
		assert.Equal(t, c.status, g.StatusCode, "%s %s", c.method, c.path)
		assert.Contains(t, g.body, c.says)
		assert.Equal(t, c.allow, g.Header.Get("Allow"))
	}
}

func TestHealthAndReadinessAreReported(t *testing.T) {
	b := newBench(t, "v26.05")
	get := func(path string) got { return b.do("GET", path, "", "", nil) }
	assert.Equal(t, 200, get("/healthz").StatusCode)
	assert.Equal(t, 200, get("/readyz").StatusCode)
	b.target.Crash()
	assert.Equal(t, 200, get("/healthz").StatusCode)
	g := get("/readyz")
	assert.Equal(t, 503, g.StatusCode)
	assert.Equal(t, "not ready\n", g.body)
	require.NoError(t, b.target.Restart())
	assert.Equal(t, 200, get("/readyz").StatusCode)
}

func TestBodiesOfUnknownLengthAreRead(t *testing.T) {
	b := newBench(t, "v26.05")
	chunked := func(body string) got {
		return b.do("POST", "/", "admin", adminPassword, io.MultiReader(strings.NewReader(body)))
	}
	assert.Equal(t, 200, chunked(createMalloc).StatusCode)
	g := chunked(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("x", 300<<10) + `"}}`)
	assert.Equal(t, 413, g.StatusCode)
	assert.Equal(t, jsonrpc.CodeTooLarge, g.code(t))
}

func TestPanicsAreContained(t *testing.T) {
	b := newBench(t, "v26.05")
	working := b.proxy.gate.Settings()
	broken := *working
	broken.Tenancy = nil
	b.proxy.gate.Apply(&broken, b.config.Limits)
	g := b.post(createMalloc)
	assert.Equal(t, 500, g.StatusCode)
	assert.Equal(t, -32603, g.code(t))
	assert.Len(t, b.log.Lines(t, "panic"), 1)
	assert.EqualValues(t, 500, b.lastCall()["status"])
	b.proxy.gate.Apply(working, b.config.Limits)
	assert.Equal(t, 200, b.post(createMalloc).StatusCode)
	drained, _ := b.proxy.gate.Drain()
	<-drained // returns only if no call counts as in flight
}

func TestDisconnectedClientIsDetected(t *testing.T) {
	b := newBench(t, "v26.05")
	b.target.Inject(spdktest.Fault{Method: "bdev_malloc_create", Delay: 50 * time.Millisecond})
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", b.http.URL, strings.NewReader(createMalloc))
	require.NoError(t, err)
	r.SetBasicAuth("admin", adminPassword)
	failed := make(chan error)
	go func() {
		_, err := b.http.Client().Do(r)
		failed <- err
	}()
	require.Eventually(t, func() bool { return b.inFlight() == 1 }, long, time.Millisecond)
	leave()
	require.Error(t, <-failed)
	require.Eventually(t, func() bool { return len(b.log.Lines(t, "call")) == 1 }, long, time.Millisecond)
	assert.EqualValues(t, 200, b.lastCall()["status"], "the log contains the outcome")
}

func basicHeader(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}
