package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/request"
)

// A call's secret cannot make the controller use the controller's own token.
func TestCallSecretsMustNotNameFiles(t *testing.T) {
	for _, entry := range []string{`"tokenFile": "/var/run/secrets/token"`, `"tokenFile": "token"`, `"certFile": "c", "keyFile": "k"`, `"token": "t", "certFile": "/c", "keyFile": "/k"`} {
		_, err := Credentials(map[string]string{SecretKey: `{"rpcTokens": [{"name": "a", ` + entry + `}]}`}, "", "")
		require.ErrorIs(t, err, request.ErrCredentials)
		require.ErrorContains(t, err, "only if the controller's own")
	}
	tokens, err := Credentials(map[string]string{SecretKey: `{"rpcTokens": [{"name": "a", "token": "t"}]}`}, "", "")
	require.NoError(t, err)
	assert.Equal(t, "t", tokens["a"].Token)
}

// Calls for a volume carry the Secret that was used to create it. If that Secret is changed to the
// controller's own credentials, the calls continue to work.
func TestCallSecretsMayNameControllerFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret.json")
	secret := func(entries string) map[string]string {
		return map[string]string{SecretKey: `{"rpcTokens": [` + entries + `]}`}
	}
	const token, certificate = `{"name": "a", "tokenFile": "token"}`, `{"name": "b", "certFile": "/c", "keyFile": "k"}`
	const password = `{"name": "c", "username": "u", "password": "p"}`
	require.NoError(t, os.WriteFile(file, []byte(secret(token + "," + certificate)[SecretKey]), 0o600))

	got, err := Credentials(secret(certificate+","+password+","+token), file, "")
	require.NoError(t, err)
	assert.Equal(t, map[string]Credential{
		"a": {Name: "a", TokenFile: filepath.Join(filepath.Dir(file), "token")},
		"b": {Name: "b", CertFile: "/c", KeyFile: filepath.Join(filepath.Dir(file), "k")},
		"c": {Name: "c", Username: "u", Password: "p"},
	}, got)
	for _, entry := range []string{
		`{"name": "a", "tokenFile": "other"}`, `{"name": "x", "tokenFile": "token"}`, `{"name": "a", "tokenFile": "./token"}`,
		`{"name": "b", "certFile": "/c", "keyFile": "token"}`, `{"name": "b", "certFile": "/c", "keyFile": "k", "token": "t"}`,
	} {
		_, err := Credentials(secret(entry), file, "")
		require.ErrorIs(t, err, request.ErrCredentials, entry)
	}
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = Credentials(secret(token), file, "")
	require.ErrorIs(t, err, request.ErrCredentials, "the controller's own secret is broken")
	require.NoError(t, os.Remove(file))
	_, err = Credentials(secret(token), file, "")
	require.ErrorIs(t, err, request.ErrCredentials)
}
