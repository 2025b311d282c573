package spdkrpc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seen returns a client of a fake proxy. Its results contain the client's Authorization header and
// the name in the client's certificate. It refuses the certificate with the name "old".
func seen(t *testing.T, change func(*HTTPSConfig)) (*HTTPS, error) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := ""
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		if name == "old" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"id":%d,"result":%q}`, r.ContentLength, r.Header.Get("Authorization")+"|"+name)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := x509.NewCertPool()
	ca.AddCert(server.Certificate())
	c := HTTPSConfig{URL: server.URL, CA: ca}
	change(&c)
	return NewHTTPS(c)
}

// whoCalls makes one call and returns what the proxy saw.
func whoCalls(t *testing.T, h *HTTPS) (string, error) {
	// The next call's id is then the id in the server's response.
	h.nextID.Store(uint64(len(`{"jsonrpc":"2.0","id":41,"method":"m"}`)) - 1)
	var who string
	err := h.Call(t.Context(), "m", nil, &who)
	return who, err
}

func writeCertificate(t *testing.T, file, name string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	both := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	require.NoError(t, os.WriteFile(file, both, 0o600))
}

func TestCredentialsNameTheCaller(t *testing.T) {
	pair := filepath.Join(t.TempDir(), "pair.pem")
	writeCertificate(t, pair, "ann")
	for want, change := range map[string]func(*HTTPSConfig){
		"|":                       func(*HTTPSConfig) {},
		"Basic YW5uOnNlY3JldA==|": func(c *HTTPSConfig) { c.Username, c.Password = "ann", "secret" },
		"Bearer spdkgate_x|":      func(c *HTTPSConfig) { c.Token = "spdkgate_x" },
		"|ann":                    func(c *HTTPSConfig) { c.CertFile, c.KeyFile = pair, pair },
		"Bearer spdkgate_x|ann":   func(c *HTTPSConfig) { c.Token, c.CertFile, c.KeyFile = "spdkgate_x", pair, pair },
	} {
		h, err := seen(t, change)
		require.NoError(t, err)
		who, err := whoCalls(t, h)
		require.NoError(t, err)
		assert.Equal(t, want, who)
	}
}

// The client reads the token file again for each call, because kubelet renews tokens.
func TestTokenFilesAreReread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	h, err := seen(t, func(c *HTTPSConfig) { c.TokenFile = file })
	require.NoError(t, err, "the file may be created later")
	_, err = whoCalls(t, h)
	require.ErrorIs(t, err, Unreachable)
	assert.Contains(t, err.Error(), ": no credentials: read the token: ")
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		who, err := whoCalls(t, h)
		require.NoError(t, err)
		assert.Equal(t, "Bearer "+token+"|", who)
	}
	for _, broken := range []string{"", " \n", "two words", "secret\nmore"} {
		require.NoError(t, os.WriteFile(file, []byte(broken), 0o600))
		_, err = whoCalls(t, h)
		require.ErrorIs(t, err, Unreachable)
		assert.NotContains(t, err.Error(), "secret")
	}
}

// A connection keeps the certificate that was used to establish it. After a refusal, the next call
// uses the current certificate.
func TestCertificateFilesAreReread(t *testing.T) {
	pair := filepath.Join(t.TempDir(), "pair.pem")
	writeCertificate(t, pair, "old")
	h, err := seen(t, func(c *HTTPSConfig) { c.CertFile, c.KeyFile = pair, pair })
	require.NoError(t, err)
	_, err = whoCalls(t, h)
	require.ErrorIs(t, err, Denied)
	writeCertificate(t, pair, "new")
	who, err := whoCalls(t, h)
	require.NoError(t, err)
	assert.Equal(t, "|new", who)

	require.NoError(t, os.Remove(pair))
	require.NoError(t, h.Close())
	_, err = whoCalls(t, h)
	require.ErrorIs(t, err, Unreachable)
}

func TestInvalidCredentialsAreRejected(t *testing.T) {
	for says, c := range map[string]HTTPSConfig{
		"specify exactly one of username":                        {URL: "https://h", Username: "u", Token: "secret"},
		"specify exactly one of":                                 {URL: "https://h", Token: "secret", TokenFile: "/x"},
		"a client certificate and its key must be used together": {URL: "https://h", CertFile: "/x"},
		"works only with an https:// URL":                        {URL: "http://h", CertFile: "/x", KeyFile: "/x"},
		"must be a single ASCII word":                            {URL: "https://h", Token: "secret\r\nX: y"},
	} {
		_, err := NewHTTPS(c)
		require.ErrorContains(t, err, says)
		assert.NotContains(t, err.Error(), "secret")
	}
}
