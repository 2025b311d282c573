package kubernetes

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMissingAccessIsReported(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := InCluster()
	require.ErrorIs(t, err, ErrNoAccess, "outside of a cluster")
	_, err = New("192.0.2.1", "443", t.TempDir())
	require.ErrorIs(t, err, ErrNoAccess)
	require.ErrorContains(t, err, "token must be mounted")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("x"), 0o600))
	_, err = New("192.0.2.1", "443", dir)
	require.ErrorContains(t, err, "contains no certificate")
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.crt")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "ca.crt"), 0o700))
	_, err = New("192.0.2.1", "443", dir)
	require.ErrorContains(t, err, "read the CA")
}

func TestStatusCodesMapToErrorKinds(t *testing.T) {
	a := newAPI(t)
	for status, kind := range map[int]error{
		http.StatusUnauthorized: ErrForbidden, http.StatusForbidden: ErrForbidden, http.StatusNotFound: ErrNotFound,
		http.StatusConflict: ErrChanged, http.StatusUnprocessableEntity: ErrChanged,
	} {
		a.change(func() { a.status = status })
		_, err := a.client.node(t.Context(), "node-1")
		require.ErrorIs(t, err, kind, "%d", status)
		require.ErrorContains(t, err, "GET /api/v1/nodes/node-1")
		require.ErrorContains(t, err, "spdkcsi-node-sa")
		require.NotContains(t, err.Error(), "first", "the token")
	}
	a.change(func() { a.status = http.StatusInternalServerError })
	_, err := a.client.node(t.Context(), "node-1")
	require.ErrorContains(t, err, "HTTP status 500")
}

// The errors of Send distinguish a missing resource from a missing object, and an invalid object
// from a changed object.
func TestSendDistinguishesErrors(t *testing.T) {
	for _, test := range []struct {
		method, body string
		status       int
		is, isNot    error
	}{
		{http.MethodGet, `404 page not found`, http.StatusNotFound, ErrNoResource, ErrChanged},
		{http.MethodGet, `{"kind": "Status", "details": {"name": "x"}}`, http.StatusNotFound, ErrNotFound, ErrNoResource},
		{http.MethodPost, `{}`, http.StatusConflict, ErrChanged, ErrInvalid},
		{http.MethodPost, `{}`, http.StatusUnprocessableEntity, ErrInvalid, ErrChanged},
		{http.MethodPut, `{}`, http.StatusUnprocessableEntity, ErrInvalid, ErrChanged},
		{http.MethodPut, `{}`, http.StatusForbidden, ErrForbidden, ErrChanged},
	} {
		a := newAPI(t)
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, test.method, r.Method)
			assert.Equal(t, "/apis/x", r.RequestURI)
			w.WriteHeader(test.status)
			_, _ = w.Write([]byte(test.body))
		}))
		t.Cleanup(server.Close)
		a.client.server = server.URL
		_, err := a.client.Send(t.Context(), test.method, "/apis/x", []byte(`{}`))
		require.ErrorIs(t, err, test.is, "%d", test.status)
		require.NotErrorIs(t, err, test.isNot, "%d", test.status)
	}
}

func TestSendReturnsTheResponse(t *testing.T) {
	a := newAPI(t)
	for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusAccepted} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.JSONEq(t, `{"a": 1}`, string(body))
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			w.WriteHeader(status)
			_, _ = w.Write([]byte(`{"b": 2}`))
		}))
		t.Cleanup(server.Close)
		a.client.server = server.URL
		response, err := a.client.Send(t.Context(), http.MethodPut, "/apis/x", []byte(`{"a": 1}`))
		require.NoError(t, err)
		assert.JSONEq(t, `{"b": 2}`, string(response))
	}
}

// The token is read for each call, because kubelet renews it while the process is running.
func TestTokenIsReadForEachCall(t *testing.T) {
	a := newAPI(t)
	_, err := a.client.node(t.Context(), "node-1")
	require.NoError(t, err)
	a.setToken("second")
	_, err = a.client.node(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, []string{"GET /api/v1/nodes/node-1 Bearer first", "GET /api/v1/nodes/node-1 Bearer second"}, a.calls)
	require.NoError(t, os.Remove(filepath.Join(a.dir, "token")))
	_, err = a.client.node(t.Context(), "node-1")
	require.ErrorIs(t, err, ErrNoAccess)
}

// The client never sends its token to a server whose certificate was not issued by the cluster's
// CA.
func TestServerIsVerified(t *testing.T) {
	a, other := newAPI(t), newAPI(t)
	a.client.server = other.client.server
	other.change(func() { other.calls = nil })
	ca, err := os.ReadFile(filepath.Join(other.dir, "ca.crt"))
	require.NoError(t, err)
	own, err := os.ReadFile(filepath.Join(a.dir, "ca.crt"))
	require.NoError(t, err)
	if string(ca) == string(own) {
		t.Skip("httptest uses one certificate for all servers")
	}
	_, err = a.client.node(t.Context(), "node-1")
	require.Error(t, err)
	assert.Empty(t, other.calls)
}
