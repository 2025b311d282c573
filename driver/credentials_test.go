package driver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/request"
)

// A secret of a call cannot make the controller use its own token.
func TestSecretsOfCallsNameNoFiles(t *testing.T) {
	for _, entry := range []string{`"tokenFile": "/var/run/secrets/token"`, `"tokenFile": "token"`, `"certFile": "c", "keyFile": "k"`, `"token": "t", "certFile": "/c", "keyFile": "/k"`} {
		_, err := Credentials(map[string]string{SecretKey: `{"rpcTokens": [{"name": "a", ` + entry + `}]}`}, "", "")
		require.ErrorIs(t, err, request.ErrCredentials)
		require.ErrorContains(t, err, "only the controller's own")
	}
	tokens, err := Credentials(map[string]string{SecretKey: `{"rpcTokens": [{"name": "a", "token": "t"}]}`}, "", "")
	require.NoError(t, err)
	assert.Equal(t, "t", tokens["a"].Token)
}
