package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// If there are several revocation lists, LoadRevocationLists returns the earliest expiry. It
// rejects files with any other content.
func TestRevocationListsAreLoaded(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now().UTC().Truncate(time.Second)
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCRLSign, SubjectKeyId: []byte{1}}
	list := func(days int) []byte {
		der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now, NextUpdate: now.AddDate(0, 0, days)}, authority, key)
		require.NoError(t, err)
		return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
	}
	load := func(text ...[]byte) ([]*x509.RevocationList, time.Time, error) {
		return LoadRevocationLists("crl.pem", func(string) ([]byte, error) { return bytes.Join(text, nil), nil })
	}
	lists, expire, err := LoadRevocationLists("", nil)
	require.NoError(t, err)
	assert.Empty(t, lists)
	assert.True(t, expire.IsZero())
	for _, days := range [][]int{{7}, {30, 7}, {7, 30}, {30, 7, 90}} {
		var text [][]byte
		for _, d := range days {
			text = append(text, list(d))
		}
		lists, expire, err := load(text...)
		require.NoError(t, err)
		assert.Len(t, lists, len(days))
		assert.Equal(t, now.AddDate(0, 0, 7), expire.UTC(), "%v", days)
	}
	_, _, err = load()
	require.ErrorContains(t, err, "no PEM-encoded certificate revocation list")
	_, _, err = load(list(7), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")}))
	require.ErrorContains(t, err, "crl.pem is not a certificate revocation list")
	broken := errors.New("broken")
	_, _, err = LoadRevocationLists("crl.pem", func(string) ([]byte, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
}

// A self-signed certificate contains all addresses at which clients can reach the server.
func TestSelfSignedCertificateContainsAllAddresses(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	texts := func(listen string) (names, addresses []string) {
		names, ips := addressesOf(listen)
		for _, ip := range ips {
			addresses = append(addresses, ip.String())
		}
		return names, addresses
	}
	names, addresses := texts("192.0.2.7:9009")
	assert.Equal(t, []string{"localhost", host}, names)
	assert.Equal(t, []string{"192.0.2.7", "127.0.0.1", "::1"}, addresses)
	for listen, want := range map[string][]string{"storage.example:9009": {"localhost", host, "storage.example"}, "0.0.0.0:9009": {"localhost", host}, "[::]:9009": {"localhost", host}, ":9009": {"localhost", host}} {
		names, addresses := texts(listen)
		assert.Equal(t, want, names, listen)
		assert.Contains(t, addresses, "127.0.0.1", listen)
		for _, a := range addresses {
			assert.False(t, strings.HasPrefix(a, "fe80:") || strings.HasPrefix(a, "169.254."), a)
		}
	}
	cert, _, _, err := generate("storage.example:9009")
	require.NoError(t, err)
	assert.Equal(t, "storage.example", cert.Leaf.Subject.CommonName)
	assert.True(t, cert.Leaf.BasicConstraintsValid)
	assert.False(t, cert.Leaf.IsCA)
	assert.LessOrEqual(t, cert.Leaf.SerialNumber.BitLen(), 127)
	assert.WithinDuration(t, time.Now().Add(selfSignedFor), cert.Leaf.NotAfter, time.Hour)
}

// Each new self-signed certificate causes one warning; other certificates cause none.
func TestSelfSignedCertificatesCauseOneWarning(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	warnings := func() int {
		defer log.Reset()
		return strings.Count(log.String(), "self-signed")
	}
	var shown Shown
	memory, dir := Source{ReadFile: os.ReadFile}, Source{SelfSignedDir: filepath.Join(t.TempDir(), "d"), ReadFile: os.ReadFile}
	file := Source{CertFile: filepath.Join(dir.SelfSignedDir, "tls.crt"), KeyFile: filepath.Join(dir.SelfSignedDir, "tls.key"), ReadFile: os.ReadFile}
	for i, c := range []struct {
		from Source
		want int
		says string
	}{{memory, 1, "changes at each start"}, {memory, 0, ""}, {dir, 1, "must trust a copy"}, {dir, 0, ""}, {file, 0, ""}, {memory, 0, ""}} {
		require.NoError(t, shown.Load(c.from, logger))
		assert.Contains(t, log.String(), c.says)
		assert.Equal(t, c.want, warnings(), i)
	}
	fresh := Source{SelfSignedDir: filepath.Join(t.TempDir(), "e"), ReadFile: os.ReadFile}
	require.NoError(t, shown.Load(fresh, logger))
	assert.Equal(t, 1, warnings())
}
