package controller

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/config"
	"github.com/spdkgate/spdkgate/driver/request"
)

// After a token has been renewed in its file, the same client uses the new token for the next call.
func TestRenewedTokenIsUsedFromTheNextCall(t *testing.T) {
	var seen []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header.Get("Authorization"))
		var call struct{ ID uint64 }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&call))
		fmt.Fprintf(w, `{"id":%d,"result":{"version":"SPDK v26.05","fields":{"major":26,"minor":5,"patch":0,"suffix":""}}}`, call.ID)
	}))
	defer proxy.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, config.SecretKey)
	require.NoError(t, os.WriteFile(file, []byte(`{"rpcTokens": [{"name": "a", "tokenFile": "token"}]}`), 0o600))
	targets, err := newTargets(&config.Config{Nodes: []config.Target{{Name: "a", RPCURL: proxy.URL}}})
	require.NoError(t, err)
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
		tokens, err := config.Credentials(nil, file, "")
		require.NoError(t, err)
		client, err := targets.client(targets.configs[0], tokens["a"])
		require.NoError(t, err)
		_, err = client.rpc.SpdkGetVersion(t.Context())
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"Bearer first", "Bearer second"}, seen)
	assert.Len(t, targets.clients, 1)
}

func TestEachCredentialUsesItsOwnClient(t *testing.T) {
	targets, err := newTargets(&config.Config{Nodes: []config.Target{{Name: "a", RPCURL: "https://192.0.2.1"}}})
	require.NoError(t, err)
	for n, c := range []config.Credential{
		{Username: "x", Password: "y"}, {Username: "x"}, {Token: "x"}, {TokenFile: "x"}, {CertFile: "x", KeyFile: "y"}, {Token: "x", CertFile: "x", KeyFile: "y"},
		{Username: `x" "y`}, {Username: "x\x00y"},
	} {
		for range 2 {
			_, err := targets.client(targets.configs[0], c)
			require.NoError(t, err)
			assert.Len(t, targets.clients, n+1, "%d", n)
		}
	}
}

func TestUnusableCredentialsAreReported(t *testing.T) {
	targets, err := newTargets(&config.Config{Nodes: []config.Target{{Name: "a", RPCURL: "http://192.0.2.1"}}})
	require.NoError(t, err)
	certificate := map[string]config.Credential{"a": {CertFile: "x", KeyFile: "y"}}
	_, err = targets.open("a", certificate)
	require.ErrorContains(t, err, "target a: credentials: a client certificate")
	_, err = targets.openEach(targets.placement, certificate)
	require.ErrorContains(t, err, "target a: credentials: a client certificate")
	_, err = targets.open("removed", map[string]config.Credential{"removed": {Username: "x", Password: "y"}})
	require.ErrorIs(t, err, request.ErrUnknownTarget)
}
