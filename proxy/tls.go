package proxy

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spdkgate/spdkgate/proxy/config"
)

// A certificate is what the server shows; a reload replaces it.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
	// fleeting was made for want of any other, and is kept for the process's life: its
	// clients know no other.
	fleeting *tls.Certificate
}

// load makes the certificate of a configuration the one that is shown.
func (t *certificate) load(c *config.Config, log *slog.Logger) error {
	if c.TLS.CertFile != "" || c.TLS.SelfSignedDir != "" {
		cert, err := loadCertificate(c, log)
		if err == nil {
			t.current.Store(cert)
		}
		return err
	}
	if t.fleeting == nil {
		var err error
		if t.fleeting, err = loadCertificate(c, log); err != nil {
			return err
		}
	}
	t.current.Store(t.fleeting)
	return nil
}

// serverTLS shows the certificate of now to clients that speak TLS 1.2 or newer,
// and asks for theirs if the settings of now say so.
func (s *Server) serverTLS() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // see Server.httpServer about HTTP/2
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.current.Load(), nil },
	}
	asking := base.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs, now.ClientAuth = s.settings.Load().clientAuth()
		return now, nil
	}
	return asking
}

// loadClientCAs reads the authorities that vouch for client certificates, and when
// the first of their certificates expires.
func loadClientCAs(c *config.Config) (pool *x509.CertPool, expire time.Time, err error) {
	if c.TLS.ClientCAFile == "" {
		return nil, expire, nil
	}
	text, err := config.ReadTrusted(c.TLS.ClientCAFile)
	if err != nil {
		return nil, expire, fmt.Errorf("tls.client_ca_file: %w", err)
	}
	pool = x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, expire, fmt.Errorf("tls.client_ca_file: there is no certificate in PEM form in %s", c.TLS.ClientCAFile)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && (expire.IsZero() || cert.NotAfter.Before(expire)) {
			expire = cert.NotAfter
		}
	}
	return pool, expire, nil
}

// loadCertificate reads the certificate that the configuration names, or makes
// a self-signed one, and says so.
func loadCertificate(c *config.Config, log *slog.Logger) (*tls.Certificate, error) {
	if c.TLS.CertFile == "" {
		return selfSigned(c, log)
	}
	cert, err := readPair(c.TLS.CertFile, c.TLS.KeyFile)
	if err != nil {
		return nil, err
	}
	if left := time.Until(cert.Leaf.NotAfter); left < 14*24*time.Hour {
		log.Warn("certificate expires soon", "cert_file", c.TLS.CertFile, "expires", cert.Leaf.NotAfter)
	}
	return cert, nil
}

func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	certPEM, err := config.ReadTrusted(certFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	keyPEM, err := config.ReadTrusted(keyFile)
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

// fingerprint is the SHA-256 of a certificate as openssl x509 -fingerprint writes it.
func fingerprint(cert *tls.Certificate) string {
	sum := sha256.Sum256(cert.Certificate[0])
	pairs := make([]string, len(sum))
	for i, b := range sum {
		pairs[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(pairs, ":")
}

// addressesOf are the names and addresses under which clients may reach a
// server that listens at listen.
func addressesOf(listen string) (names []string, addresses []net.IP) {
	names = []string{"localhost"}
	if host, err := os.Hostname(); err == nil {
		names = append(names, host)
	}
	host, _, _ := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	switch {
	case ip != nil && !ip.IsUnspecified():
		return names, []net.IP{ip, net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	case ip == nil && host != "":
		names = append(names, host)
	}
	interfaces, _ := net.InterfaceAddrs() // without them, clients must pin the certificate
	for _, a := range interfaces {
		if network, ok := a.(*net.IPNet); ok && !network.IP.IsLinkLocalUnicast() {
			addresses = append(addresses, network.IP)
		}
	}
	return names, addresses
}
