package spdkrpc

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func proxied(t testing.TB, handle http.HandlerFunc) *HTTPS {
	server := httptest.NewTLSServer(handle)
	t.Cleanup(server.Close)
	ca := x509.NewCertPool()
	ca.AddCert(server.Certificate())
	h, err := NewHTTPS(HTTPSConfig{URL: server.URL, Username: "u", Password: "p", CA: ca})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close() })
	return h
}

func TestHTTPSCallReturnsTheResult(t *testing.T) {
	h := proxied(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		assert.Equal(t, "u p POST /", user+" "+password+" "+r.Method+" "+r.URL.Path)
		var c call
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"result":{"method":%q,"params":%s}}`, c.ID, c.Method, c.Params)
	})
	var got struct {
		Method string
		Params map[string]uint64
	}
	require.NoError(t, h.Call(t.Context(), "m", map[string]uint64{"n": 1<<64 - 1}, &got))
	assert.Equal(t, "m", got.Method)
	assert.Equal(t, uint64(1<<64-1), got.Params["n"])
}

func TestHTTPSErrorsHaveTheKindOfTheResponse(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		kind   Kind
	}{
		"SPDK's error":           {200, `{"id":1,"error":{"code":-19,"message":"No such device"}}`, NoSuchDevice},
		"limit":                  {429, `{"id":1,"error":{"code":-32029,"message":"wait 2s"}}`, Unreachable},
		"too many logins":        {429, `{"id":1,"error":{"code":-32030,"message":"wait 2s"}}`, Unreachable},
		"proxy's error":          {504, `{"id":1,"error":{"code":-32054,"message":"no response"}}`, OutcomeUnknown},
		"unauthorized, bare":     {401, `Unauthorized`, Denied},
		"too many, bare":         {429, ``, Unreachable},
		"unavailable, bare":      {503, ``, Unreachable},
		"bad gateway, bare":      {502, `<html>`, OutcomeUnknown},
		"teapot":                 {418, ``, OutcomeUnknown},
		"redirect":               {302, ``, OutcomeUnknown},
		"not JSON":               {200, `{"id":1,`, OutcomeUnknown},
		"another call's id":      {200, `{"id":2,"result":true}`, OutcomeUnknown},
		"result of another type": {200, `{"id":1,"result":{"a":1}}`, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			h := proxied(t, func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, "/", r.URL.Path, "a redirect must not be followed")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			var result bool
			err := h.Call(t.Context(), "m", nil, &result)
			require.ErrorIs(t, err, c.kind)
			assert.Equal(t, c.status == http.StatusTooManyRequests, strings.HasPrefix(err.Error(), "m: limit reached: "), err.Error())
			assert.Equal(t, c.status == http.StatusUnauthorized || name == "too many logins", errors.Is(err, ErrCredentials), err.Error())
			assert.NotErrorIs(t, err, ErrCertificate)
			assert.NotContains(t, err.Error(), "p@", "no password in errors")
		})
	}
}

func TestHTTPSErrorsStateTheOutcome(t *testing.T) {
	dropped := proxied(t, func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) })
	require.ErrorIs(t, dropped.Call(t.Context(), "m", nil, nil), OutcomeUnknown)

	gone := httptest.NewServer(nil)
	gone.Close()
	h, err := NewHTTPS(HTTPSConfig{URL: gone.URL})
	require.NoError(t, err)
	require.ErrorIs(t, h.Call(t.Context(), "m", nil, nil), Unreachable)

	stuck := make(chan struct{})
	slow := proxied(t, func(http.ResponseWriter, *http.Request) { <-stuck })
	// Unblock the handler, because the server is waiting for it.
	t.Cleanup(func() { close(stuck) })
	// Increase the timeout until the client can connect.
	for slow.timeout = 20 * time.Millisecond; ; slow.timeout *= 2 {
		if err = slow.Call(t.Context(), "m", nil, nil); !errors.Is(err, Unreachable) {
			break
		}
	}
	require.ErrorIs(t, err, OutcomeUnknown)
}

func TestHTTPSDistrustsUnknownAuthorities(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	h, err := NewHTTPS(HTTPSConfig{URL: server.URL, CA: x509.NewCertPool()})
	require.NoError(t, err)
	err = h.Call(t.Context(), "m", nil, nil)
	require.ErrorIs(t, err, Unreachable)
	require.ErrorIs(t, err, ErrCertificate)
	require.NotErrorIs(t, err, ErrCredentials)
}

func TestInvalidHTTPSOptionsAreRejected(t *testing.T) {
	for in, says := range map[string]string{
		"":                        "must look like https://host:port/",
		"ftp://x":                 "must look like",
		"https://":                "must look like",
		"https://u:secret@host/":  "must not contain a user or password",
		"https://u:secret@ho st/": "proxy URL",
	} {
		_, err := NewHTTPS(HTTPSConfig{URL: in})
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "secret")
	}
}
