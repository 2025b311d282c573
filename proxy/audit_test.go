package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

func TestAuditLineContainsTheCall(t *testing.T) {
	b := newBench(t, "v26.05")
	g := b.post(createMalloc)
	line := b.lastCall()
	for key, want := range map[string]any{
		"level": "INFO", "msg": "call", "user": "admin", "method": "bdev_malloc_create", "decision": "allow", "rule": "role admin: allow *",
		"status": 200.0, "request_id": g.Header.Get("X-Request-Id"),
		"params": map[string]any{"name": "m0", "num_blocks": 2048.0, "block_size": 512.0},
	} {
		assert.Equal(t, want, line[key], key)
	}
	assert.Regexp(t, `^127\.0\.0\.1:\d+$`, line["source"])
	assert.Greater(t, line["latency_ms"], 0.0)
	assert.NotContains(t, line, "code")

	b.post(createMalloc)
	assert.EqualValues(t, -17, b.lastCall()["code"])
	assert.Equal(t, "INFO", b.lastCall()["level"], "an error from SPDK is not an error of the proxy")
	b.post("{")
	assert.Equal(t, "WARN", b.lastCall()["level"])
}

// Request IDs sent by clients are logged if they are well-formed.
func TestClientRequestIDsAreLogged(t *testing.T) {
	b := newBench(t, "v26.05")
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct{ id, parent, loggedID, loggedTrace string }{
		{"req-1", "00-" + trace + "-00f067aa0ba902b7-01", "req-1", trace},
		{"", "cc-" + trace + "-00f067aa0ba902b7-01-later", "", trace},
		{"two words", "00-" + trace + "-00f067aa0ba902b7-01-more", "", ""},
		{strings.Repeat("x", 129), "ff-" + trace + "-00f067aa0ba902b7-01", "", ""},
		{"r\u00e9q", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", ""},
		{"", "00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01", "", ""},
	} {
		g := b.do("POST", "/", "admin", adminPassword, strings.NewReader(version), "X-Request-Id", c.id, "Traceparent", c.parent)
		line := b.lastCall()
		assert.Equal(t, g.Header.Get("X-Request-Id"), line["request_id"])
		assert.NotEqual(t, c.id, line["request_id"])
		for key, want := range map[string]string{"client_request_id": c.loggedID, "trace_id": c.loggedTrace} {
			if want == "" {
				assert.NotContains(t, line, key, c)
			} else {
				assert.Equal(t, want, line[key], c)
			}
		}
	}
}

// Secrets sent by clients are never logged, whatever the outcome of the call.
func TestSecretsAreNotLogged(t *testing.T) {
	const secret = "0123456789abcdef0123456789ABCDEF"
	b := newBench(t, "v26.05")
	call := func(user, password, body string) { b.do("POST", "/", user, password, strings.NewReader(body)) }
	create := `{"id":1,"method":"accel_crypto_key_create","params":{"cipher":"AES_CBC","key":"` + secret + `","name":"k"}}`
	call("admin", adminPassword, create)
	require.Equal(t, map[string]any{"cipher": "AES_CBC", "key": rpcschema.Redacted, "name": "k"}, b.lastCall()["params"])
	call("viewer", viewerPassword, create)
	call("admin", adminPassword, `{"id":1,"method":"accel_crypto_key_create","params":{"key":"`+secret+`","nam":"`+secret+`","cipher":["`+secret+`"]}}`)
	call("admin", adminPassword, `{"id":1,"method":"accel_crypto_key_crate","params":{"key":"`+secret+`"}}`)
	call("admin", adminPassword, `{"id":1,"method":"accel_crypto_key_create","params":"`+secret+`"}`)
	call("admin", adminPassword, `{"id":1,"method":"accel_crypto_key_create","params":{"key":"`+secret+`"`)
	call("admin", secret, create)
	call(secret, "x", create) // a password sent as the user name
	require.Len(t, b.log.Lines(t, "call"), 8)
	for _, hidden := range []string{secret, adminPassword, viewerPassword, basicHeader("admin", adminPassword), hashes()[adminPassword], "$2a$"} {
		assert.NotContains(t, b.log.String(), hidden)
	}
}

func TestLongInputIsNotLogged(t *testing.T) {
	b := newBench(t, "v26.05")
	b.post(`{"id":1,"method":"` + strings.Repeat("m", 100<<10) + `"}`)
	b.post(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("n", 100<<10) + `"}}`)
	b.post(`{"id":1,"method":"bdev_get_bdevs","params":{"` + strings.Repeat("n", 100<<10) + `":1}}`)
	require.Len(t, b.log.Lines(t, "call"), 3)
	assert.Less(t, len(b.log.String()), 16<<10)
}

// Clients cannot keep parameters out of the log by padding requests with spaces, or by adding other
// calls to a batch.
func TestPaddingDoesNotHideParameters(t *testing.T) {
	b := newBench(t, "v26.05")
	want := map[string]any{"name": "m0", "num_blocks": 2048.0, "block_size": 512.0}
	b.post(createMalloc[:1] + strings.Repeat(" ", 17<<10) + createMalloc[1:])
	assert.Equal(t, want, b.lastCall()["params"])
	other := `,{"id":2,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("n", 255) + `"}}`
	require.Equal(t, 200, b.post("["+createMalloc+strings.Repeat(other, 80)+"]").StatusCode)
	for _, line := range b.log.Lines(t, "call") {
		if line["method"] == "bdev_malloc_create" {
			assert.Equal(t, want, line["params"])
		}
	}
	b.post(`{"id":1,"method":"bdev_get_bdevs","params":{"name":"` + strings.Repeat("n", 16<<10) + `"}}`)
	assert.Equal(t, "(16395 bytes, too long to be logged)", b.lastCall()["params"])
}

// These limits match those in package auditlog, which merges entries for unauthenticated requests.
const (
	linesPerSource = 10
	mergedMessage  = "unauthenticated calls"
)

// Entries for unauthenticated requests are merged, but entries for authenticated users are not.
func TestOnlyUnauthenticatedRequestsAreMerged(t *testing.T) {
	b := newBench(t, "v26.05")
	for range 30 {
		assert.Equal(t, http.StatusUnauthorized, b.do("POST", "/", "", "", strings.NewReader(createMalloc)).StatusCode)
	}
	require.Len(t, b.log.Lines(t, "call"), linesPerSource)
	for range 30 {
		assert.Equal(t, http.StatusForbidden, b.do("POST", "/", "viewer", viewerPassword, strings.NewReader(createMalloc)).StatusCode)
	}
	require.Len(t, b.log.Lines(t, "call"), linesPerSource+30)
	b.proxy.auditLog.Flush()
	require.Len(t, b.log.Lines(t, mergedMessage), 1)
	assert.EqualValues(t, 20, b.log.Lines(t, mergedMessage)[0]["count"])
	text := b.scrape()
	assert.Contains(t, text, "\nspdk_proxy_audit_merged_total 20\n")
	assert.Contains(t, text, fmt.Sprintf("\nspdk_proxy_audit_lines_total %d\n", linesPerSource+30))
	assert.Contains(t, text, `spdk_proxy_authentication_failures_total{reason="no_credentials"} 30`)
}
