package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// selfSignedFor is the validity of a self-signed certificate: ten years. Clients trust exactly this
// certificate, so a new certificate would lock them out.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// selfSigned returns a self-signed certificate. If there is a state directory, the certificate is
// stored there, so that it survives restarts.
func selfSigned(from Source) (*tls.Certificate, error) {
	dir := from.SelfSignedDir
	if dir == "" {
		cert, _, _, err := generate(from.Listen)
		return cert, err
	}
	if cert, err := readSelfSigned(from); cert != nil || err != nil {
		return cert, err
	}
	certFile, keyFile := from.selfSignedFiles()
	if err := generateInto(dir, certFile, keyFile, from.Listen); err != nil {
		return nil, err
	}
	return readSelfSigned(from)
}

// CheckSelfSigned checks a stored self-signed certificate, and returns the error that Load would
// return. It creates nothing, and returns nil if no certificate is stored.
func CheckSelfSigned(from Source) error {
	if from.SelfSignedDir == "" {
		return nil
	}
	_, err := readSelfSigned(from)
	return err
}

// readSelfSigned returns the stored self-signed certificate, or nil if there is none.
func readSelfSigned(from Source) (*tls.Certificate, error) {
	certFile, keyFile := from.selfSignedFiles()
	_, certErr := os.Stat(certFile)
	_, keyErr := os.Stat(keyFile)
	if errors.Is(certErr, fs.ErrNotExist) && errors.Is(keyErr, fs.ErrNotExist) {
		return nil, nil
	}
	cert, err := readPair(certFile, keyFile, from.ReadFile)
	if err != nil {
		return nil, fmt.Errorf("self-signed certificate: %w (remove both tls.crt and tls.key in %s to create new ones)", err, from.SelfSignedDir)
	}
	return cert, nil
}

func (from Source) selfSignedFiles() (certFile, keyFile string) {
	return filepath.Join(from.SelfSignedDir, "tls.crt"), filepath.Join(from.SelfSignedDir, "tls.key")
}

func warnSelfSigned(from Source, cert *tls.Certificate, log *slog.Logger) {
	if from.SelfSignedDir == "" {
		log.Warn("the certificate is self-signed and changes at each start, so clients cannot verify it: set tls.self_signed_dir, or tls.cert_file and tls.key_file",
			"sha256", Fingerprint(cert))
		return
	}
	certFile, keyFile := from.selfSignedFiles()
	log.Warn("the certificate is self-signed: clients must trust a copy of cert_file, or compare the fingerprint (sha256)",
		"cert_file", certFile, "key_file", keyFile, "sha256", Fingerprint(cert))
}

func generateInto(dir, certFile, keyFile, listen string) error {
	_, certPEM, keyPEM, err := generate(listen)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of the self-signed certificate: %w", err)
	}
	if err := os.WriteFile(keyFile, keyPEM, 0o600); err != nil {
		return fmt.Errorf("write the self-signed certificate's key: %w", err)
	}
	if err := os.WriteFile(certFile, certPEM, 0o644); err != nil {
		return fmt.Errorf("write the self-signed certificate: %w", err)
	}
	return nil
}

func generate(listen string) (cert *tls.Certificate, certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	names, addresses := addressesOf(listen)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: names[len(names)-1], Organization: []string{"spdk-proxy, self-signed"}},
		NotBefore:    now.Add(-time.Hour), // tolerates slow clocks of clients
		NotAfter:     now.Add(selfSignedFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     names, IPAddresses: addresses,
		BasicConstraintsValid: true, // not a CA
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	return &pair, certPEM, keyPEM, nil
}

// addressesOf returns the names and addresses at which clients can reach a server that listens at
// listen.
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
	interfaces, _ := net.InterfaceAddrs() // if this fails, clients must pin the certificate
	for _, a := range interfaces {
		if network, ok := a.(*net.IPNet); ok && !network.IP.IsLinkLocalUnicast() {
			addresses = append(addresses, network.IP)
		}
	}
	return names, addresses
}
