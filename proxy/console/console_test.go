package console

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var page = fstest.MapFS{
	"index.html":            {Data: []byte("<!doctype html>" + strings.Repeat("<p>page</p>", 100))},
	"assets/index-1a2b.js":  {Data: []byte(strings.Repeat("call();", 100))},
	"assets/logo-3c4d.png":  {Data: []byte("\x89PNG not compressible")},
	"favicon.svg":           {Data: []byte("<svg/>")},
	"manifest.webmanifest":  {Data: []byte("{}")},
	"assets/index-1a2b.css": {Data: []byte(strings.Repeat("a{}", 100))},
}

func get(t *testing.T, files fs.FS, at string, header ...string) *http.Response {
	h, err := Handler(files)
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, at, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestFilesAreServed(t *testing.T) {
	for at, want := range map[string]struct{ name, kind, cache string }{
		"/console/":                      {"index.html", "text/html; charset=utf-8", "no-cache"},
		"/console/index.html":            {"index.html", "text/html; charset=utf-8", "no-cache"},
		"/console/volumes":               {"index.html", "text/html; charset=utf-8", "no-cache"},
		"/console/rpc/bdev_get_bdevs":    {"index.html", "text/html; charset=utf-8", "no-cache"},
		"/console/favicon.svg":           {"favicon.svg", "image/svg+xml", "no-cache"},
		"/console/assets/index-1a2b.js":  {"assets/index-1a2b.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"},
		"/console/assets/index-1a2b.css": {"assets/index-1a2b.css", "text/css; charset=utf-8", "public, max-age=31536000, immutable"},
		"/console/assets/logo-3c4d.png":  {"assets/logo-3c4d.png", "image/png", "public, max-age=31536000, immutable"},
	} {
		resp := get(t, page, at)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode, at)
		assert.Equal(t, string(page[want.name].Data), string(body), at)
		assert.Equal(t, want.kind, resp.Header.Get("Content-Type"), at)
		assert.Equal(t, want.cache, resp.Header.Get("Cache-Control"), at)
		assert.Equal(t, http.StatusNotModified, get(t, page, at, "If-None-Match", `"x", W/`+resp.Header.Get("ETag")).StatusCode, at)
	}
	for _, at := range []string{"/console/assets/none.js", "/console/../secret.txt", "/console/index.htm", "/console/assets/index-1a2b.js.map"} {
		assert.Equal(t, http.StatusNotFound, get(t, page, at).StatusCode, at)
	}
}

func TestFilesAreCompressed(t *testing.T) {
	resp := get(t, page, "/console/assets/index-1a2b.js", "Accept-Encoding", "br, GZIP;q=0.5")
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	plain := get(t, page, "/console/assets/index-1a2b.js")
	assert.NotEqual(t, plain.Header.Get("ETag"), resp.Header.Get("ETag"))
	assert.Equal(t, "Accept-Encoding", plain.Header.Get("Vary"))
	body, err := gzip.NewReader(resp.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	assert.Equal(t, string(page["assets/index-1a2b.js"].Data), string(text))
	assert.Empty(t, get(t, page, "/console/assets/logo-3c4d.png", "Accept-Encoding", "gzip").Header.Get("Content-Encoding"))
	for _, refused := range []string{"br", "gzip;q=0", "gzip; q=0.0", "x-gzip", ""} {
		assert.Empty(t, get(t, page, "/console/", "Accept-Encoding", refused).Header.Get("Content-Encoding"), refused)
	}
}

func TestHeadResponsesHaveNoBody(t *testing.T) {
	h, err := Handler(page)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/console/", nil))
	assert.Empty(t, w.Body.String())
	assert.Equal(t, "1115", w.Header().Get("Content-Length"))
}

func TestUnservableFilesAreReported(t *testing.T) {
	_, err := Handler(fstest.MapFS{"a.js": {}})
	require.ErrorContains(t, err, "there is no index.html")
	_, err = Handler(fstest.MapFS{"index.html": {}, "a.exe": {}})
	require.ErrorContains(t, err, "a.exe")
}

var (
	inline   = regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>\s*[^<\s]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	elsewere = regexp.MustCompile(`(?i)(?:src|href)="?(?:https?:)?//`)
)

// The compiled-in page obeys its own Content-Security-Policy: it has no inline scripts or styles,
// and loads nothing from other addresses.
func TestPageObeysItsContentSecurityPolicy(t *testing.T) {
	_, err := Handler(Files())
	require.NoError(t, err)
	require.NoError(t, fs.WalkDir(Files(), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) != ".html" {
			return err
		}
		text, err := fs.ReadFile(Files(), name)
		assert.NotRegexp(t, inline, string(text), name)
		assert.NotRegexp(t, elsewere, string(text), name)
		return err
	}))
}
