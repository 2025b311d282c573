package page

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/terminal"
)

var address = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}

func fleetOf(names ...string) *terminal.Fleet {
	var servers []terminal.Server
	for _, name := range names {
		servers = append(servers, terminal.NewServer(name, "https://"+name+":9009", nil, "unreachable", errors.New("no route to <b>"+name+"</b>")))
	}
	return terminal.NewFleet(time.Now(), servers)
}

func get(p *Page, method, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

// The page refuses requests from other sites, which must use their own host names (DNS rebinding),
// and from other users of this host, who do not know the secret.
func TestPageRefusesOtherAddresses(t *testing.T) {
	p := New(address, time.Second, func() *terminal.Fleet { return fleetOf("a") })
	root := strings.TrimPrefix(p.URL(), "http://127.0.0.1:8080")
	require.Greater(t, len(root), 26)
	require.NotEqual(t, p.URL(), New(address, time.Second, nil).URL())
	for _, host := range []string{"127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080"} {
		for _, path := range []string{"", "table", "page.js", "page.css", "icon.svg"} {
			assert.Equal(t, http.StatusOK, get(p, http.MethodGet, host, root+path).Code, host+" "+path)
		}
	}
	for _, host := range []string{"attacker.example:8080", "attacker.example", "127.0.0.1", "127.0.0.1:8081", "localhost.attacker.example:8080", ""} {
		for _, path := range []string{"", "table", "page.js"} {
			w := get(p, http.MethodGet, host, root+path)
			assert.Equal(t, http.StatusForbidden, w.Code, host+" "+path)
			assert.NotContains(t, w.Body.String(), "https://a")
		}
	}
	wrong := "/" + strings.Repeat("A", len(root)-2) + "/"
	for _, path := range []string{"/", "/table", "/page.js", root[:len(root)-1], root[:len(root)-2] + "/", wrong, wrong + "table", "/x" + root} {
		assert.Equal(t, http.StatusForbidden, get(p, http.MethodGet, "127.0.0.1:8080", path).Code, path)
	}
	assert.Equal(t, http.StatusNotFound, get(p, http.MethodGet, "127.0.0.1:8080", root+"other").Code)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		assert.Equal(t, http.StatusMethodNotAllowed, get(p, method, "127.0.0.1:8080", root+"table").Code, method)
	}
	for _, path := range []string{root, root + "table", root + "page.js", "/"} {
		h := get(p, http.MethodGet, "127.0.0.1:8080", path).Header()
		assert.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self';")
		assert.Equal(t, "no-referrer", h.Get("Referrer-Policy"), "a link must not reveal the secret")
		assert.Equal(t, "same-origin", h.Get("Cross-Origin-Resource-Policy"))
		assert.Equal(t, "no-store", h.Get("Cache-Control"))
		assert.Empty(t, h.Get("Access-Control-Allow-Origin"))
	}
}

func TestTableEscapesServerResponses(t *testing.T) {
	f := fleetOf("a\u202e")
	f.Servers[0].URL = "javascript:alert(1)"
	p := New(address, time.Second, func() *terminal.Fleet { return f })
	text := get(p, http.MethodGet, "127.0.0.1:8080", strings.TrimPrefix(p.URL(), "http://127.0.0.1:8080")+"table").Body.String()
	assert.Contains(t, text, "no route to &lt;b&gt;a")
	assert.NotContains(t, text, "<b>")
	assert.NotContains(t, text, "javascript:")
	assert.NotContains(t, text, "\u202e")
	assert.Contains(t, text, "1 storage server, 1 needs attention")
	assert.Contains(t, text, `data-attention="1"`)
}

// The page appears before the first read ends. Concurrent requests share a read, and the next read
// begins only after the interval.
func TestConcurrentRequestsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var readings atomic.Int32
		p := New(address, 5*time.Second, func() *terminal.Fleet {
			readings.Add(1)
			time.Sleep(10 * time.Second)
			return fleetOf("a")
		})
		root := strings.TrimPrefix(p.URL(), "http://127.0.0.1:8080")
		assert.Contains(t, get(p, http.MethodGet, "127.0.0.1:8080", root).Body.String(), "Reading…")
		assert.Zero(t, readings.Load())
		for range 5 {
			go func() { get(p, http.MethodGet, "127.0.0.1:8080", root+"table") }()
		}
		left, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		assert.Nil(t, p.fresh(left), "a browser that disconnects does not wait")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, readings.Load())
		assert.Contains(t, get(p, http.MethodGet, "127.0.0.1:8080", root).Body.String(), "no route to")
		time.Sleep(3 * time.Second)
		get(p, http.MethodGet, "127.0.0.1:8080", root+"table")
		assert.EqualValues(t, 1, readings.Load())
		time.Sleep(2 * time.Second)
		get(p, http.MethodGet, "127.0.0.1:8080", root+"table")
		assert.EqualValues(t, 2, readings.Load())
	})
}
