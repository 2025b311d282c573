package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
)

func TestConfigIsParsed(t *testing.T) {
	// SPDK's spdk-csi writes this key in lower case in its example, and capitalized in its Go code.
	for _, nodes := range []string{"nodes", "Nodes"} {
		c, err := Parse([]byte(`{"` + nodes + `": [{"name": "localhost", "rpcURL": "http://127.0.0.1:9009", "targetType": "nvme-tcp", "targetAddr": "127.0.0.1"}]}`))
		require.NoError(t, err)
		assert.Equal(t, []Target{{
			Name: "localhost", RPCURL: "http://127.0.0.1:9009", TargetType: "nvme-tcp", TargetAddr: "127.0.0.1", TargetPort: "4420", ListenAddr: "127.0.0.1", ListenPort: "4420",
		}}, c.Nodes)
	}
	c, err := Parse([]byte(`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "iSCSI", "targetAddr": "storage.example", "listenAddr": "192.0.2.1", "listenPort": "9", "lvstores": ["x"]}]}`))
	require.NoError(t, err)
	assert.Equal(t, "3260", c.Nodes[0].TargetPort)
	assert.Equal(t, "9", c.Nodes[0].ListenPort)
}

func TestInvalidConfigIsRejected(t *testing.T) {
	node := func(rest string) string {
		return `{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"` + rest + `}]}`
	}
	require.NotPanics(t, func() { _, err := Parse([]byte(node(""))); require.NoError(t, err) })
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {``, "it must look like"},
		"no JSON":            {`nodes:`, "it must look like"},
		"no nodes":           {`{"nodes": []}`, "at least one target"},
		"unknown key":        {node(`, "lvstore": ["x"]`), "lvstore"},
		"twice":              {node(`, "name": "b"`), "name"},
		"both spellings":     {`{"nodes": [], "Nodes": []}`, "Nodes"},
		"number for a port":  {node(`, "targetPort": 4420`), "targetPort"},
		"port":               {node(`, "targetPort": "0"`), "targetPort"},
		"loopDir":            {node(`, "loopDir": "/x"`), "loopDir"},
		"loop, no directory": {`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "loop"}]}`, "loopDir"},
		"relative loopDir":   {`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "loop", "loopDir": "x"}]}`, "absolute"},
		"two CAs":            {node(`, "ca": "x", "caFile": "y"`), "remove one of them"},
		"name with colon":    {`{"nodes": [{"name": "a:b", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "name"},
		"type":               {`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme", "targetAddr": "192.0.2.1"}]}`, "nvme-tcp, nvme-rdma or iscsi"},
		"host name":          {`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "storage"}]}`, "listenAddr"},
		"no address":         {`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp"}]}`, "targetAddr"},
		"URL":                {`{"nodes": [{"name": "a", "rpcURL": "s:1", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "https://host:port/"},
		"no web URL":         {`{"nodes": [{"name": "a", "rpcURL": "ftp://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "https://host:port/"},
		"URL of no host":     {`{"nodes": [{"name": "a", "rpcURL": "https:///x", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "https://host:port/"},
		"malformed URL":      {`{"nodes": [{"name": "a", "rpcURL": "https://hunter2@s:%zz/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "https://host:port/"},
		"password in URL":    {`{"nodes": [{"name": "a", "rpcURL": "https://u:hunter2@s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "put those into the secret"},
		"same name":          {`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}, {"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]}`, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestConfigIsLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	t.Setenv(PathEnv, path)
	_, err := Load()
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "$SPDKCSI_CONFIG")
	require.NoError(t, os.WriteFile(path, []byte(`{"nodes": 1}`), 0o600))
	_, err = Load()
	assert.ErrorContains(t, err, path)
}

func TestCAFileIsLoaded(t *testing.T) {
	n := Target{Name: "a"}
	pool, err := n.CertPool()
	require.NoError(t, err)
	assert.Nil(t, pool, "the system's certificates")
	n.CA = "no certificate"
	_, err = n.CertPool()
	assert.ErrorContains(t, err, "PEM")
	_, err = (&Target{Name: "a", CAFile: filepath.Join(t.TempDir(), "none")}).CertPool()
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestCredentialsFileIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), SecretKey)
	t.Setenv(CredentialsEnv, path)
	_, err := CredentialsFile()
	require.ErrorIs(t, err, os.ErrNotExist, "the variable names a file that must exist")
	for text, want := range map[string]string{
		`{"rpcTokens": [{"name": "a", "username": "u", "password": "hunter2"}]}`:                                                        "",
		`{"rpcTokens": [{"name": "a", "username": "u", "passwort": "hunter2"}]}`:                                                        "rpcTokens",
		`{"rpcTokens": [{"name": "a", "password": "hunter2"}]}`:                                                                         "no username",
		`{"rpcTokens": [{"name": "a", "username": "u", "password": "hunter2"}, {"name": "a", "username": "v", "password": "hunter2"}]}`: "twice",
		`{"rpcTokens": [{"name": "a", "token": "hunter2"}]}`:                                                                            "",
		`{"rpcTokens": [{"name": "a", "tokenFile": "token", "certFile": "c", "keyFile": "/k"}]}`:                                        "",
		`{"rpcTokens": [{"name": "a", "certFile": "c", "keyFile": "k"}]}`:                                                               "",
		`{"rpcTokens": [{"name": "a", "certFile": "c"}]}`:                                                                               "together",
		`{"rpcTokens": [{"name": "a"}]}`:                                                                                                "no username, token, tokenFile or certFile",
		`{"rpcTokens": [{"username": "u", "password": "hunter2"}]}`:                                                                     "has no name",
		`{"rpcTokens": [{"name": "a", "token": "hunter2", "username": "u"}]}`:                                                           "one of username",
		`{"rpcTokens": [{"name": "a", "token": "hunter2", "password": "hunter2"}]}`:                                                     "one of username",
		`{"rpcTokens": [{"name": "a", "token": "hunter2", "tokenFile": "x"}]}`:                                                          "one of username",
		`hunter2`: "must look like",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := CredentialsFile()
		if want == "" {
			require.NoError(t, err)
			assert.Equal(t, path, got)
			continue
		}
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
}

func TestTransportIsDerivedFromTheTarget(t *testing.T) {
	for targetType, want := range map[string]export.Transport{TargetNVMeTCP: export.TCP, TargetNVMeRDMA: export.RDMA, TargetISCSI: export.ISCSI, TargetLoop: export.TCP} {
		assert.Equal(t, want, (&Target{TargetType: targetType}).Transport(), targetType)
	}
}
