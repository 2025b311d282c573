package kubernetes

import (
	"net/http"
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
	_, err = newClient("192.0.2.1", "443", t.TempDir())
	require.ErrorIs(t, err, ErrNoAccess)
	require.ErrorContains(t, err, "token must be mounted")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("x"), 0o600))
	_, err = newClient("192.0.2.1", "443", dir)
	require.ErrorContains(t, err, "has no certificate")
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.crt")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "ca.crt"), 0o700))
	_, err = newClient("192.0.2.1", "443", dir)
	require.ErrorContains(t, err, "read the CA")
}

func TestErrorsHaveTheirKind(t *testing.T) {
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

// Kubelet renews the token while the process runs.
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

// A server that the cluster's CA did not certify never receives the token.
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
