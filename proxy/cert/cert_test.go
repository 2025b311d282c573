package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var quiet = slog.New(slog.DiscardHandler)

func TestSelfSignedCertificateIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var log bytes.Buffer
	from := Source{SelfSignedDir: dir, Listen: "192.0.2.7:9009", ReadFile: os.ReadFile}
	var shown Shown
	require.NoError(t, shown.Load(from, slog.New(slog.NewTextHandler(&log, nil))))
	first := shown.Current()
	assert.Contains(t, log.String(), Fingerprint(first))
	assert.Contains(t, log.String(), "level=WARN")
	require.NoError(t, first.Leaf.VerifyHostname("192.0.2.7"))
	require.NoError(t, first.Leaf.VerifyHostname("localhost"))
	require.Error(t, first.Leaf.VerifyHostname("elsewhere"))

	again, err := Load(from, quiet)
	require.NoError(t, err)
	assert.Equal(t, Fingerprint(first), Fingerprint(again))
	pair := Source{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), ReadFile: os.ReadFile}
	again, err = Load(pair, quiet)
	require.NoError(t, err)
	assert.Equal(t, Fingerprint(first), Fingerprint(again))
	info, err := os.Stat(pair.KeyFile)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.Remove(pair.KeyFile))
	_, err = Load(from, quiet)
	require.ErrorContains(t, err, "remove both", "a certificate without its key is not replaced")
}

// A self-signed certificate in memory stays the same until the process ends, even if other
// certificates are presented in between.
func TestInMemoryCertificateIsReused(t *testing.T) {
	var shown Shown
	assert.Nil(t, shown.Current())
	require.NoError(t, shown.Load(Source{Listen: "proxy.example:1"}, quiet))
	inMemory := shown.Current()
	require.NoError(t, inMemory.Leaf.VerifyHostname("proxy.example"))
	kept := Source{SelfSignedDir: t.TempDir(), Listen: ":1", ReadFile: os.ReadFile}
	require.NoError(t, shown.Load(kept, quiet))
	other := shown.Current()
	assert.NotSame(t, inMemory, other)

	refused := errors.New("not trusted")
	kept.ReadFile = func(string) ([]byte, error) { return nil, refused }
	require.ErrorIs(t, shown.Load(kept, quiet), refused)
	assert.Same(t, other, shown.Current(), "after an error, the previous one stays")
	require.NoError(t, shown.Load(Source{}, quiet))
	assert.Same(t, inMemory, shown.Current())
}

func TestMismatchedCertificateAndKeyAreRejected(t *testing.T) {
	files := map[string][]byte{}
	read := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return text, nil
		}
		return nil, fs.ErrNotExist
	}
	for _, name := range []string{"a", "b"} {
		var err error
		_, files[name+".crt"], files[name+".key"], err = generate("127.0.0.1:1")
		require.NoError(t, err)
	}
	for _, pair := range [][2]string{{"a.crt", "b.key"}, {"none", "a.key"}, {"a.crt", "none"}, {"a.key", "a.crt"}} {
		_, err := Load(Source{CertFile: pair[0], KeyFile: pair[1], ReadFile: read}, quiet)
		require.Error(t, err, pair)
	}
	files["both"] = append(bytes.Clone(files["a.crt"]), files["a.key"]...)
	_, err := Load(Source{CertFile: "both", KeyFile: "both", ReadFile: read}, quiet)
	require.NoError(t, err)
}

func TestClientCAsAreLoaded(t *testing.T) {
	first, firstPEM, keyPEM, err := generate("127.0.0.1:1")
	require.NoError(t, err)
	_, secondPEM, _, err := generate("127.0.0.1:1")
	require.NoError(t, err)
	files := map[string][]byte{"two": append(bytes.Clone(firstPEM), secondPEM...), "none": keyPEM}
	read := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return text, nil
		}
		return nil, fs.ErrNotExist
	}
	pool, expire, err := LoadClientCAs("two", read)
	require.NoError(t, err)
	assert.False(t, expire.After(first.Leaf.NotAfter), "the first to expire")
	assert.NotNil(t, pool)
	pool, _, err = LoadClientCAs("", read)
	require.NoError(t, err)
	assert.Nil(t, pool)
	_, _, err = LoadClientCAs("none", read)
	require.ErrorContains(t, err, "none contains no PEM-encoded certificate")
	_, _, err = LoadClientCAs("missing", read)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A client that trusts the certificate accepts a server that presents it.
func TestClientTrustsSelfSignedCertificate(t *testing.T) {
	var shown Shown
	dir := t.TempDir()
	require.NoError(t, shown.Load(Source{SelfSignedDir: dir, Listen: "127.0.0.1:0", ReadFile: os.ReadFile}, quiet))
	pool, _, err := LoadClientCAs(filepath.Join(dir, "tls.crt"), os.ReadFile)
	require.NoError(t, err)
	here, there := net.Pipe()
	server := tls.Server(there, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Current(), nil }})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	require.NoError(t, tls.Client(here, &tls.Config{RootCAs: pool, ServerName: "localhost"}).Handshake())
	require.NoError(t, <-done)
}

// A state directory that cannot be read or written causes an error.
func TestUnusableDirectoryIsReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := Load(Source{SelfSignedDir: filepath.Join(file, "state"), ReadFile: os.ReadFile}, quiet)
	require.ErrorContains(t, err, "self-signed certificate")
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tls.key"), 0o700))
	_, err = Load(Source{SelfSignedDir: dir, ReadFile: os.ReadFile}, quiet)
	require.ErrorContains(t, err, "remove both")
	require.Error(t, generateInto(dir, filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), ":1"))
	require.Error(t, generateInto(dir, filepath.Join(dir, "none", "tls.crt"), filepath.Join(dir, "key"), ":1"))
}

// A certificate that expires soon causes a warning. An expired certificate is rejected.
func TestExpiredCertificatesAreRejected(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for days, says := range map[int]string{100: "", 3: "certificate expires soon", -1: "renew it"} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: time.Now().AddDate(0, 0, days)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		require.NoError(t, err)
		pair := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})...)
		var log bytes.Buffer
		_, err = Load(Source{CertFile: "x", KeyFile: "x", ReadFile: func(string) ([]byte, error) { return pair, nil }}, slog.New(slog.NewTextHandler(&log, nil)))
		if days < 0 {
			require.ErrorContains(t, err, says)
			continue
		}
		require.NoError(t, err)
		assert.Contains(t, log.String(), says)
		assert.Equal(t, says == "", log.Len() == 0)
	}
}
