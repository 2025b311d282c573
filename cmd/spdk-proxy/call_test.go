package main

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// If the certificate does not match the URL's host name, the error does not suggest --ca, which
// would not help.
func TestCallFailsIfTheCertificateLacksTheHostName(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is for example.com, 127.0.0.1 and ::1
	defer server.Close()
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))

	o := run(t, "", "call", "--url", url, "--user", "admin", "--ca", ca, "spdk_get_version")
	assert.Equal(t, exitUnreachable, o.code)
	assert.Contains(t, o.stderr, "the names and addresses in the certificate are example.com")
	assert.Contains(t, o.stderr, "127.0.0.1, ::1: use one of them in --url or $SPDK_PROXY_URL, or give the proxy a certificate for localhost (tls.cert_file)")
	assert.NotContains(t, o.stderr, "--ca")

	o = run(t, "", "call", "--url", server.URL, "--user", "admin", "spdk_get_version")
	assert.Equal(t, exitUnreachable, o.code)
	assert.Contains(t, o.stderr, "set --ca or $SPDK_PROXY_CA")
}

// An error caused by the proxy's limits does not claim that the proxy is unreachable.
func TestCallReportsTooManyFailedLogins(t *testing.T) {
	path := writeConfig(t, target(t).Socket(), "limits: {auth_failures_per_minute: 1}\n")
	d := start(t, nil, "serve", "--config", path)
	wrong := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(wrong, []byte("wrong\n"), 0o600))
	var o outcome
	for range 20 { // exceeds the burst of ten attempts
		o = run(t, "", "call", "--url", d.url, "--user", "admin", "--ca", filepath.Join(filepath.Dir(path), "tls.crt"), "--password-file", wrong, "spdk_get_version")
		if o.code != exitDenied {
			break
		}
	}
	assert.Equal(t, exitLimited, o.code)
	assert.Regexp(t, `^spdk-proxy: spdk_get_version: limit reached: too many failed logins: wait \S+, then send the correct credentials`, o.stderr)
	assert.NotContains(t, o.stderr, "unreachable")
}

// A command that makes few calls does not open a stream, because opening one costs more than the
// calls.
func TestCommandsWithFewCallsDoNotOpenStreams(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		mu.Unlock()
		w.Header().Set("Spdkgate-Stream", "/stream")
		var c struct{ ID json.Number }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&c))
		_, _ = io.WriteString(w, `{"id":`+c.ID.String()+`,"result":{"version":"SPDK v26.05"}}`)
	}))
	defer server.Close()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("word\n"), 0o600))
	where := []string{"--url", server.URL, "--user", "admin", "--password-file", password}
	o := run(t, "", append([]string{"call", "spdk_get_version"}, where...)...)
	require.Zero(t, o.code, o.stderr)
	run(t, "", append([]string{"status"}, where...)...)
	assert.Greater(t, len(paths), 2)
	assert.NotContains(t, paths, "/stream")
}

// Unless a flag permits it, credentials are sent over http:// only to this host.
func TestCredentialsAreNotSentUnencryptedToOtherHosts(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer server.Close()
	other := strings.Replace(server.URL, "127.0.0.1", "0.0.0.0", 1) // reaches this host, but is not a loopback address
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	call := func(url string, args ...string) outcome {
		return run(t, "", append([]string{"call", "--url", url, "--user", "admin", "--password-file", password, "spdk_get_version"}, args...)...)
	}
	o := call(other)
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "refusing to send credentials unencrypted to 0.0.0.0: use https://, or --insecure-plaintext if")
	list := writeFleet(t, "servers: [{name: a, url: '"+other+"', user: admin, password_file: "+password+"}]")
	o = run(t, "", "fleet", list)
	assert.Equal(t, exitAttention, o.code)
	assert.Contains(t, o.stdout, "refusing to send credentials unencrypted to 0.0.0.0: use https://, or insecure_plaintext: true if")
	assert.Zero(t, requests.Load())

	for _, local := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)} {
		assert.NotEqual(t, exitUsage, call(local).code)
	}
	assert.NotEqual(t, exitUsage, call(other, "--insecure-plaintext").code)
	run(t, "", "fleet", writeFleet(t, "defaults: {insecure_plaintext: true}\nservers: [{name: a, url: '"+other+"', user: admin, password_file: "+password+"}]"))
	assert.EqualValues(t, 4, requests.Load())
}

// If the server at the URL is not a proxy, the error says so.
func TestCallReportsServersThatAreNotProxies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") }))
	defer server.Close()
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	const says = "HTTP 200 OK: the server does not respond as spdk-proxy does: check the URL"
	o := run(t, "", "call", "--url", server.URL, "--user", "admin", "--password-file", password, "spdk_get_version")
	assert.Equal(t, exitOutcomeUnknown, o.code)
	assert.Contains(t, o.stderr, says)
	o = run(t, "", "fleet", writeFleet(t, "servers: [{name: a, url: '"+server.URL+"', user: admin, password_file: "+password+"}]"))
	assert.Equal(t, exitAttention, o.code)
	assert.Regexp(t, `(?m)^a +failed +- `, o.stdout)
	assert.Contains(t, o.stdout, says)
}

// The command accepts rpc.discover, which the schema does not list.
func TestCallAcceptsRPCDiscover(t *testing.T) {
	o := run(t, "", append([]string{"call", "rpc.discover"}, through(t, target(t))...)...)
	require.Zero(t, o.code, o.stderr)
	assert.Contains(t, o.stdout, `"name": "bdev_get_bdevs"`)
}

// The command explains SPDK's codes with the text of the method's schema.
func TestCallExplainsCodes(t *testing.T) {
	o := run(t, "", append([]string{"call", "bdev_lvol_create", "lvs_name=none", "lvol_name=v", "size_in_mib=4"}, through(t, target(t))...)...)
	assert.Equal(t, exitFailed, o.code)
	assert.Contains(t, o.stderr, "(code -19): No such lvstore")

	attach, err := rpcschema.Default().Find("bdev_nvme_attach_controller", rpcschema.Release{})
	require.NoError(t, err)
	refused := explained(attach, &spdkrpc.Error{Method: attach.Name, Kind: spdkrpc.NoSuchDevice, Code: -19})
	assert.ErrorContains(t, refused, "To unbind it from the kernel driver, run SPDK's `scripts/setup.sh` on the server, with the address in `PCI_ALLOWED`")
	assert.Equal(t, spdkrpc.NoSuchDevice, spdkrpc.KindOf(refused))
}
