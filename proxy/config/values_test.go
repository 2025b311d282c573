package config

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/policy"
)

// A command line of rpc_http_proxy.py becomes a configuration with one user, who may call every
// method.
func TestScriptCommandLineIsConverted(t *testing.T) {
	s := Script{Host: "127.0.0.1", Port: "9009", User: "spdkuser", Password: "spdkpass", Socket: "/var/tmp/spdk.sock"}
	c, err := s.Config()
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:9009", c.Listen)
	assert.True(t, c.TLS.InsecurePlaintext)
	assert.Equal(t, "/var/tmp/spdk.sock", c.Target.Socket)
	assert.Equal(t, "text", c.Log.Format)
	assert.Equal(t, []string{"spdkuser"}, c.UserNames())
	assert.Equal(t, map[string]policy.User{"spdkuser": {Roles: []string{policy.Admin}}}, c.PolicyUsers())
	users, err := c.AuthUsers()
	require.NoError(t, err)
	require.Len(t, users, 1)
	assert.Len(t, users[0].Hashes, 1)
	require.Len(t, c.Warnings(), 2)
	assert.Contains(t, c.Warnings()[0], "command line")
	assert.Contains(t, c.Warnings()[1], "unencrypted")

	s.Cert = "both.pem"
	c, err = s.Config()
	require.NoError(t, err)
	assert.Equal(t, "both.pem", c.TLS.CertFile)
	assert.Equal(t, "both.pem", c.TLS.KeyFile)
	assert.Len(t, c.Warnings(), 1)

	s.Port = ""
	_, err = s.Config()
	require.ErrorContains(t, err, "listen must be")
	s.Password = ""
	_, err = s.Config()
	require.ErrorContains(t, err, "PASSWORD")
}

// Tokens that have expired or will expire soon cause warnings. TokensExpire returns the expiry of
// each user's first token.
func TestExpiringTokensCauseAWarning(t *testing.T) {
	at := func(days int) time.Time { return time.Now().AddDate(0, 0, days).UTC().Truncate(24 * time.Hour) }
	hash := func(token string, until time.Time) string { return authn.HashToken(token, until).String() }
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("listen: \":1\"\nlearning: true\nusers:\n- {name: a, token_hashes: [%q, %q, %q], roles: [admin]}\n- {name: b, token_hashes: [%q], roles: [admin], tenant: t}\ntenants: {t: {lvstores: [l]}}\n",
		hash("1", at(400)), hash("2", at(3)), hash("3", at(-3)), hash("4", time.Time{}))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	c, err := Load(path)
	require.NoError(t, err)
	warnings := strings.Join(c.Warnings(), "\n")
	assert.Contains(t, warnings, "of user a expires on "+at(3).Format(time.DateOnly))
	assert.Contains(t, warnings, "of user a expired on "+at(-3).Format(time.DateOnly))
	assert.NotContains(t, warnings, at(400).Format(time.DateOnly))
	expire := c.TokensExpire()
	require.Len(t, expire, 1, "a user without expiring tokens is not in the list")
	assert.WithinDuration(t, at(-3), expire["a"], 24*time.Hour)
	assert.Equal(t, 2, c.LearningUsers())
	c.Learning = false
	assert.Zero(t, c.LearningUsers())
	assert.Equal(t, map[string]string{"b": "t"}, c.TenantsOfUsers())
}

// Files with mistakes are decoded as far as possible. Roles and users are decoded even if secret
// files do not exist on this host.
func TestFilesWithMistakesAreDecodedPartially(t *testing.T) {
	path := writeFile(t, "listn: x\nusers: [{name: a, password_hash_file: none, roles: [r]}]\nroles: {r: {allow: [spdk_get_version]}}\n")
	c, err := LoadWhatDecodes(path)
	require.NoError(t, err)
	assert.Contains(t, c.Roles, "r")
	_, err = LoadWithoutSecrets(path)
	require.ErrorContains(t, err, path+": line 1: listn")

	path = writeFile(t, "users: [{name: a, password_hash_file: none, roles: [r]}]\nroles: {r: {allow: [spdk_get_version]}}\n")
	c, err = LoadWithoutSecrets(path)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, c.UserNames())
	assert.Contains(t, c.Roles, "r")

	missing := filepath.Join(t.TempDir(), "none.yaml")
	_, err = LoadWithoutSecrets(missing)
	require.ErrorContains(t, err, "there is no configuration at")
	_, err = LoadWhatDecodes(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, load := range []func(string) (*Config, error){Load, LoadWithoutSecrets, LoadWhatDecodes} {
		_, err = load(t.TempDir())
		require.Error(t, err, "a directory is not a file")
	}
}

// Files that control access are refused if every user can change them.
func TestReadTrustedRefusesWritableFiles(t *testing.T) {
	path := writeFile(t, "text")
	text, err := ReadTrusted(path)
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))
	require.NoError(t, os.Chmod(path, 0o602))
	_, err = ReadTrusted(path)
	require.ErrorContains(t, err, "chmod o-w "+path)
}

func TestIssuerFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"ca.pem": "authority", "empty.pem": " \n", "token": "bearer", "jwks.json": "{}"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	c := &Config{dir: dir, OIDC: []OIDC{{Name: "i", Issuer: "https://i", CAFile: "ca.pem", BearerFile: "token", JWKSFile: "jwks.json"}}}
	issuers, err := c.AuthIssuers()
	require.NoError(t, err)
	require.Len(t, issuers, 1)
	assert.Equal(t, "authority", issuers[0].Authority)
	assert.Equal(t, filepath.Join(dir, "token"), issuers[0].BearerFile)
	assert.Equal(t, "{}", string(issuers[0].JWKS))

	c.OIDC = []OIDC{{CAFile: "empty.pem", BearerFile: "none"}, {CAFile: "none", JWKSFile: "none"}}
	_, err = c.AuthIssuers()
	for _, says := range []string{"oidc[0]: ca_file: it is empty", "oidc[0]: bearer_file", "oidc[1]: ca_file", "oidc[1]: jwks_file"} {
		require.ErrorContains(t, err, says)
	}
}

func TestJournalHasItsOwnDirectory(t *testing.T) {
	c := Default()
	c.Target.Freeze.Dir, c.Target.Save.Dir = "/var/lib/x/", "/var/lib/x"
	assert.ErrorContains(t, c.validateFreeze(), "must be different directories")
}

func TestLoggersFollowTheConfiguration(t *testing.T) {
	var b bytes.Buffer
	NewLogger(&b, Log{Format: "text", Level: slog.LevelWarn}).Info("hidden")
	assert.Empty(t, b.String())
	NewLogger(&b, Log{Format: "text"}).Info("shown", "key", 1)
	assert.Contains(t, b.String(), "msg=shown key=1")
	b.Reset()
	NewLogger(&b, Log{Format: "json"}).Info("shown", "key", 1)
	assert.Contains(t, b.String(), `"msg":"shown","key":1`)
}

// A single line disables the console, and omitted keys keep their defaults.
func TestConsoleCanBeDisabled(t *testing.T) {
	on := Default().Console
	assert.True(t, on.Enabled)
	for text, want := range map[string]Console{
		"console: false":                {false, on.Idle, on.Lifetime, ""},
		"console: true":                 on,
		"console: {enabled: false}":     {false, on.Idle, on.Lifetime, ""},
		"console: {idle: 5m}":           {true, Duration(5 * time.Minute), on.Lifetime, ""},
		"console:\n  lifetime: 1h\n":    {true, on.Idle, Duration(time.Hour), ""},
		"console:":                      on,
		"console: {enabled: no}\n":      {false, on.Idle, on.Lifetime, ""},
		"console: {}":                   on,
		"console: {lifetime: 168h0m0s}": {true, on.Idle, Duration(7 * 24 * time.Hour), ""},
		"console: {grafana: 'https://grafana.example/d/spdk?var-volume={volume}'}": {true, on.Idle, on.Lifetime, "https://grafana.example/d/spdk?var-volume={volume}"},
	} {
		c := Default()
		if err := DecodeStrict([]byte(text), &c); assert.NoError(t, err, text) {
			assert.Equal(t, want, c.Console, text)
			assert.NoError(t, c.validateConsole(), text)
		}
	}
}

// console.grafana must be the URL of a web page, because a link with another scheme could run a
// script in the console.
func TestUnsafeGrafanaURLsAreRejected(t *testing.T) {
	for _, text := range []string{
		"", "https://grafana.example", "http://127.0.0.1:3000/d/spdk/volumes?orgId=1&var-server=storage-1",
		"https://grafana.example/d/spdk?var-volume={volume}&var-uuid={uuid}&var-where={store}/x",
	} {
		assert.NoError(t, validateGrafana(text), text)
	}
	for text, says := range map[string]string{
		"javascript:alert(1)": "must begin with", "//grafana.example/d": "must begin with", "/d/spdk": "must begin with", "grafana.example": "must begin with",
		"https:///d": "must begin with", "data:text/html,x": "must begin with", "https://u:p@grafana.example/": "user or password",
		"https://grafana.example/{volume}": "values of its query only", "https://grafana.example/?{volume}=1": "values of its query only", "https://grafana.example/?a={bdev}": "values of its query only",
		"https://grafana.example/#{uuid}": "values of its query only", "https://grafana.example/?a={": "values of its query only", "https://grafana.example/?a=%zz": "query that is not valid",
		"https://a b/": "not a URL", "https://{volume}.example/": "not a URL",
	} {
		assert.ErrorContains(t, validateGrafana(text), says, text)
	}
}

// A reload refuses any change to the metrics keys, because they are read only at startup.
func TestMetricsChangesRequireARestart(t *testing.T) {
	m := Metrics{Listen: "127.0.0.1:1", Volumes: 1, LatencyHistograms: []string{"a", "b"}}
	same := m
	same.LatencyHistograms = []string{"a", "b"}
	assert.True(t, m.Equal(same))
	for _, other := range []Metrics{
		{}, {Volumes: 1, LatencyHistograms: m.LatencyHistograms}, {Listen: m.Listen, LatencyHistograms: m.LatencyHistograms},
		{Listen: m.Listen, Volumes: 1}, {Listen: m.Listen, Volumes: 1, LatencyHistograms: []string{"b", "a"}},
	} {
		assert.False(t, m.Equal(other), "%+v", other)
	}
}
