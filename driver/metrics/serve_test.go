package metrics

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMetricsRequireATokenOrALoopbackAddress(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for _, c := range []struct{ address, tokenFile, text string }{
		{":0", "", "--metrics-token-file"}, {"0.0.0.0:0", "", "open to every pod"}, {"[::]:0", "", "127.0.0.1:9810"}, {"example.com:0", "", "open"}, {"nowhere", "", "open"},
		{":0", filepath.Join(dir, "missing"), "missing"}, {":0", empty, "no token"},
	} {
		_, err := New("v").Serve(c.address, c.tokenFile, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, c.text, "%s", c.address)
	}
	for _, address := range []string{"127.0.0.1:9810", "[::1]:9810", "localhost:9810", "[::ffff:127.0.0.1]:9810"} {
		assert.True(t, loopback(address), address)
	}
}

func TestMetricsRequireTheCurrentToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	var log bytes.Buffer
	s, err := New("v").Serve("127.0.0.1:0", file, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	address := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(log.String())[1]
	get := func(authorization string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		require.NoError(t, err)
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	for _, wrong := range []string{"", "first", "Bearer", "Bearer ", "Bearer firs", "Bearer first2", "Basic first"} {
		status, text := get(wrong)
		assert.Equal(t, http.StatusUnauthorized, status, wrong)
		assert.NotContains(t, text, "spdk_csi")
	}
	status, text := get("Bearer first")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "spdk_csi")
	require.NoError(t, os.WriteFile(file, []byte("second"), 0o600))
	status, _ = get("Bearer first")
	assert.Equal(t, http.StatusUnauthorized, status)
	status, _ = get("Bearer second")
	assert.Equal(t, http.StatusOK, status)
	require.NoError(t, os.Remove(file))
	status, _ = get("Bearer second")
	assert.Equal(t, http.StatusServiceUnavailable, status)
}
