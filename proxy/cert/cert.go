package cert

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// A Source describes where the server's certificate comes from: two PEM files, which may be the
// same file, or a self-signed certificate.
type Source struct {
	CertFile, KeyFile string
	// directory for a self-signed certificate; if "", the certificate stays in memory until the
	// process ends
	SelfSignedDir string
	Listen        string // the server's address, which determines the names in a self-signed certificate

	// ReadFile reads a certificate or key. It must return an error for an untrusted file.
	ReadFile func(path string) ([]byte, error)
}

// Shown contains the certificate that a server presents. Load replaces it. Load and Current may be
// called concurrently, but only one Load may run at a time.
type Shown struct {
	current atomic.Pointer[tls.Certificate]
	// inMemory is a self-signed certificate that is not stored in a file. It is reused until the
	// process ends, because clients may trust it.
	inMemory *tls.Certificate
	// warned contains the fingerprints of self-signed certificates for which a warning has been
	// logged. Each of them causes only one warning.
	warned map[string]bool
}

// Current returns the current certificate, or nil before the first Load.
func (s *Shown) Current() *tls.Certificate { return s.current.Load() }

// Load makes a source's certificate current. If it fails, the previous certificate remains in use.
// Load logs a warning if the certificate expires soon, and a warning for each new self-signed
// certificate.
func (s *Shown) Load(from Source, log *slog.Logger) error {
	cert, err := s.load(from, log)
	if err != nil {
		return err
	}
	if from.CertFile == "" && !s.warned[Fingerprint(cert)] {
		if s.warned == nil {
			s.warned = map[string]bool{}
		}
		s.warned[Fingerprint(cert)] = true
		warnSelfSigned(from, cert, log)
	}
	s.current.Store(cert)
	return nil
}

func (s *Shown) load(from Source, log *slog.Logger) (cert *tls.Certificate, err error) {
	if from.CertFile != "" || from.SelfSignedDir != "" {
		return Load(from, log)
	}
	if s.inMemory == nil {
		s.inMemory, err = Load(from, log)
	}
	return s.inMemory, err
}

// Load reads a source's certificate, or creates a self-signed one. It logs a warning if the
// certificate expires soon.
func Load(from Source, log *slog.Logger) (*tls.Certificate, error) {
	if from.CertFile == "" {
		return selfSigned(from)
	}
	cert, err := readPair(from.CertFile, from.KeyFile, from.ReadFile)
	if err != nil {
		return nil, err
	}
	if left := time.Until(cert.Leaf.NotAfter); left < 14*24*time.Hour {
		log.Warn("certificate expires soon", "cert_file", from.CertFile, "expires", cert.Leaf.NotAfter)
	}
	return cert, nil
}

func readPair(certFile, keyFile string, read func(string) ([]byte, error)) (*tls.Certificate, error) {
	certPEM, err := read(certFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	keyPEM, err := read(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate's key: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
	}
	if now := time.Now(); now.After(cert.Leaf.NotAfter) {
		return nil, fmt.Errorf("certificate %s expired on %s: renew it", certFile, cert.Leaf.NotAfter.Format(time.DateOnly))
	}
	return &cert, nil
}

// LoadClientCAs reads the authorities that sign client certificates. expire is when the first of
// the authorities' certificates expires. If path is empty, the pool is nil. read must refuse an
// untrusted file.
func LoadClientCAs(path string, read func(string) ([]byte, error)) (pool *x509.CertPool, expire time.Time, err error) {
	if path == "" {
		return nil, expire, nil
	}
	text, err := read(path)
	if err != nil {
		return nil, expire, err
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, expire, fmt.Errorf("%s contains no PEM-encoded certificate", path)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && (expire.IsZero() || cert.NotAfter.Before(expire)) {
			expire = cert.NotAfter
		}
	}
	return pool, expire, nil
}

// LoadRevocationLists reads the certificate revocation lists (CRLs) in a PEM file. It also returns
// when the first list expires. If path is empty, it returns no lists.
func LoadRevocationLists(path string, read func(string) ([]byte, error)) (lists []*x509.RevocationList, expire time.Time, err error) {
	if path == "" {
		return nil, expire, nil
	}
	text, err := read(path)
	if err != nil {
		return nil, expire, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		list, err := x509.ParseRevocationList(block.Bytes)
		switch {
		case err != nil:
			return nil, expire, fmt.Errorf("a PEM block in %s is not a certificate revocation list: %w", path, err)
		case list.NextUpdate.IsZero():
			return nil, expire, fmt.Errorf("the revocation list of %q in %s has no nextUpdate, so an outdated list could not be detected: issue lists with nextUpdate", list.Issuer, path)
		}
		lists = append(lists, list)
		if expire.IsZero() || list.NextUpdate.Before(expire) {
			expire = list.NextUpdate
		}
	}
	if lists == nil {
		return nil, expire, fmt.Errorf("%s contains no PEM-encoded certificate revocation list", path)
	}
	return lists, expire, nil
}

// Fingerprint returns the SHA-256 of a certificate in the format of `openssl x509 -fingerprint`.
func Fingerprint(cert *tls.Certificate) string {
	sum := sha256.Sum256(cert.Certificate[0])
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}
