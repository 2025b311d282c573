package authntest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a self-signed certificate.
func NewAuthority(t testing.TB, name string) *Authority {
	a := &Authority{t: t}
	a.key = newKey(t)
	template := a.template()
	template.Subject.CommonName = name
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (a *Authority) template() *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	require.NoError(a.t, err)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{}, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

// Intermediate returns an authority whose own certificate is signed by a.
func (a *Authority) Intermediate(name string) *Authority {
	b := &Authority{t: a.t, key: newKey(a.t)}
	template := a.template()
	template.Subject.CommonName = name
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	b.cert = a.sign(template, b.key)
	return b
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert
}

// Client returns a client certificate, valid for an hour, followed by the certificates of the
// authorities in above. If change is not nil, it may modify the certificate before it is signed.
func (a *Authority) Client(change func(*x509.Certificate), above ...*Authority) tls.Certificate {
	key, template := newKey(a.t), a.template()
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	change(template)
	cert := a.sign(template, key)
	pair := tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	for _, signer := range above {
		pair.Certificate = append(pair.Certificate, signer.cert.Raw)
	}
	return pair
}

// Revoke returns a PEM-encoded revocation list, valid for an hour from the given time.
func (a *Authority) Revoke(from time.Time, certificates ...*x509.Certificate) []byte {
	template := &x509.RevocationList{Number: big.NewInt(from.UnixNano()), ThisUpdate: from, NextUpdate: from.Add(time.Hour)}
	for _, c := range certificates {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: from})
	}
	der, err := x509.CreateRevocationList(rand.Reader, template, a.cert, a.key)
	require.NoError(a.t, err)
	return encode("X509 CRL", der)
}

// Certificate returns the authority's certificate.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }

// Pool returns a pool that contains only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// PEM returns the authority's PEM-encoded certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// WritePair writes a certificate and its key to NAME.crt and NAME.key in a directory.
func WritePair(t testing.TB, dir, name string, pair tls.Certificate) (certFile, keyFile string) {
	var certs []byte
	for _, der := range pair.Certificate {
		certs = append(certs, encode("CERTIFICATE", der)...)
	}
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(certFile, certs, 0o600))
	require.NoError(t, os.WriteFile(keyFile, encode("PRIVATE KEY", key), 0o600))
	return certFile, keyFile
}
