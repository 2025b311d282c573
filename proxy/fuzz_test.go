package proxy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/jsonrpc"
	"github.com/spdkgate/spdkgate/rpcschema/spdktest"
)

// A witness reads the log, and records the allowed calls.
type witness struct {
	release rpcschema.Release

	mu      sync.Mutex
	allowed map[string]int // keyed by the call in the format of inWords
	wrong   []string       // log messages about panics and other faults
}

func (w *witness) Enabled(context.Context, slog.Level) bool { return true }
func (w *witness) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w *witness) WithGroup(string) slog.Handler            { return w }

func (w *witness) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Level >= slog.LevelError {
		w.wrong = append(w.wrong, r.Message)
	}
	said := map[string]any{}
	r.Attrs(func(a slog.Attr) bool { said[a.Key] = a.Value.Any(); return true })
	if r.Message != "call" || said["decision"] != "allow" {
		return nil
	}
	method, _ := rpcschema.Default().Method(said["method"].(string))
	params, known := said["params"].(json.Marshaler)
	if _, tooLong := said["params"].(string); tooLong || method == nil {
		return nil // the call must not have reached SPDK
	}
	var fitted map[string]any
	if known {
		logged, err := params.MarshalJSON()
		if err != nil {
			return err
		}
		text := json.NewDecoder(bytes.NewReader(logged))
		text.UseNumber()
		if err := text.Decode(&fitted); err != nil {
			w.wrong = append(w.wrong, "the log's parameters are not JSON")
		}
	}
	fitted, _, err := method.Translate(fitted, w.release)
	if err == nil {
		w.allowed[inWords(method.Name, fitted)]++
	}
	return nil
}

// inWords formats a call so that neither the order of members nor the spelling of numbers matters.
func inWords(method string, params map[string]any) string {
	text, err := jsonrpc.Marshal(plainNumbers(rpcschema.Default().Redact(method, params)))
	return fmt.Sprint(method, " ", string(text), err)
}

// plainNumbers converts integers to plain digits, as a target interprets them.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return nil // differs from {}
		}
		plain := make(map[string]any, len(v))
		for name, member := range v {
			plain[name] = plainNumbers(member)
		}
		return plain
	case []any:
		plain := make([]any, len(v))
		for i, item := range v {
			plain[i] = plainNumbers(item)
		}
		return plain
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
	}
	return v
}

// FuzzConnection sends arbitrary bytes on a connection, either raw or as the body of a request from
// a user with few permissions. The proxy must not panic, and must continue to serve other users.
// Calls reach SPDK only if the proxy has allowed them with exactly the same parameters.
func FuzzConnection(f *testing.F) {
	target, err := spdktest.Start(spdktest.Options{Release: rpcschema.MustRelease("v26.05")})
	require.NoError(f, err)
	f.Cleanup(func() { _ = target.Close() })
	c := testConfig(target.Socket())
	c.Roles["viewer"] = config.Role{Allow: rules("spdk_get_version", "*_get_*", "bdev_malloc_create", "bdev_malloc_delete", "bdev_lvol_create", "bdev_lvol_resize")}
	c.Limits.AuthFailuresPerMinute = 1 << 30
	w := &witness{release: target.Release(), allowed: map[string]int{}}
	server, err := NewServer(c, Options{Log: slog.New(w)})
	require.NoError(f, err)
	l, err := server.Listen()
	require.NoError(f, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	f.Cleanup(func() { stop(); assert.NoError(f, <-served) })

	credentials := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("viewer:"+viewerPassword))
	other := &http.Client{Timeout: long}
	f.Cleanup(other.CloseIdleConnections)
	reached := map[string]int{}

	post := "POST / HTTP/1.1\r\nHost: x\r\n$AUTH\r\n"
	version := `{"id":1,"method":"spdk_get_version"}`
	for _, seed := range []string{
		post + "Content-Length: 36\r\n\r\n" + version, post + "Transfer-Encoding: chunked\r\n\r\n24\r\n" + version + "\r\n0\r\n\r\n",
		post + "Content-Length: 36\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + version, post + "Content-Length: 36\r\nContent-Length: 3\r\n\r\n" + version,
		post + "Content-Length: 99\r\n\r\n" + version, post + "Content-Length: 3\r\n\r\n" + version + post + "Content-Length: 36\r\n\r\n" + version,
		post + " folded: x\r\n\r\n", "POST / HTTP/1.0\r\n$AUTH\r\nContent-Length: 36\r\n\r\n" + version, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "GET /metrics HTTP/1.1\r\nHost: x\r\n$AUTH\r\n\r\n",
		"POST http://x/ HTTP/1.1\r\nHost: y\r\n$AUTH\r\nExpect: 100-continue\r\nContent-Length: 36\r\n\r\n" + version, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\xa5", "CONNECT x:1 HTTP/1.1\r\n\r\n",
		strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 20), post + "$AUTH\r\nContent-Length: 36\r\n\r\n" + version, post + "X: " + strings.Repeat("y", 70000) + "\r\n\r\n",
	} {
		f.Add(uint8(0), []byte(seed))
	}
	for _, body := range []string{
		version, createMalloc, `{"id":1,"method":"bdev_malloc_delete","params":{"name":"m0"}}`, `{"method":"spdk_get_version"}`, `[` + version + `,` + createMalloc + `]`, `[[` + version + `]]`, `[]`,
		version + version, `{"id":1,"method":"spdk_kill_instance","params":{"sig_name":"SIGKILL"}}`, `{"id":1,"method":"spdk_get_version","method":"spdk_kill_instance"}`,
		`{"id":1,"Method":"spdk_kill_instance","method":"spdk_get_version"}`, `{"id":1,"method":"spdk_get_version\u0000"}`, `{"id":1,"method":"bdev_get_bdevs","params":{"name":"a","name":"b"}}`,
		`{"id":1,"method":"bdev_lvol_create","params":{"lvol_name":"v","size":7,"lvs_name":"l"}}`, `{"id":1,"method":"get_bdevs"}`, `{"id":1,"method":"bdev_get_bdevs","params":{"name":"\ud800"}}`,
		`{"id":1e999,"method":"bdev_get_bdevs","params":{"timeout":1e3}}`, `{"id":1,"method":"bdev_malloc_create","params":{"name":"m","num_blocks":18446744073709551615,"block_size":512}}`, "\xef\xbb\xbf" + version, `"`, ``,
	} {
		f.Add(uint8(1), []byte(body))
		f.Add(uint8(2), []byte(body))
	}
	f.Fuzz(func(t *testing.T, framing uint8, data []byte) {
		if len(data) > 16<<10 {
			t.Skip()
		}
		head := strings.Replace(post, "$AUTH", credentials, 1) + "Connection: close\r\n"
		text := bytes.ReplaceAll(data, []byte("$AUTH"), []byte(credentials))
		switch framing % 3 {
		case 1:
			text = fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head, len(data), data)
		case 2:
			half := len(data) / 2
			text = fmt.Appendf(nil, "%sTransfer-Encoding: chunked\r\n\r\n", head)
			for _, chunk := range [][]byte{data[:half], data[half:]} {
				if len(chunk) > 0 {
					text = fmt.Appendf(text, "%x\r\n%s\r\n", len(chunk), chunk)
				}
			}
			text = append(text, "0\r\n\r\n"...)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetDeadline(time.Now().Add(long)))
		_, _ = conn.Write(text) // the proxy may close the connection early
		if framing%3 == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_, err = io.Copy(io.Discard, conn)
		var timeout net.Error
		require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the proxy must close the connection")

		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/", strings.NewReader(version))
		require.NoError(t, err)
		r.SetBasicAuth("admin", adminPassword)
		resp, err := other.Do(r)
		require.NoError(t, err)
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode, string(answer))

		for _, c := range target.Calls() {
			reached[inWords(c.Method, c.Params)]++
		}
		target.ForgetCalls()
		w.mu.Lock()
		defer w.mu.Unlock()
		require.Empty(t, w.wrong)
		for words, times := range reached {
			if !strings.HasPrefix(words, "spdk_get_version ") && !strings.HasPrefix(words, "notify_get_types ") && !strings.HasPrefix(words, "framework_get_config ") { // calls that the proxy itself makes
				require.LessOrEqual(t, times, w.allowed[words], "%s\nafter %q", words, text)
			}
		}
	})
}
