package proxy

import (
	"crypto/tls"
)

// serverTLS makes the TLS configuration of the server: with the current certificate, and with the
// versions, cipher suites and request for client certificates of the current settings.
func (s *Server) serverTLS() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // see Server.httpServer about HTTP/2
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Current(), nil },
	}
	asking := base.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		settings := s.settings.Load()
		now.ClientCAs, now.ClientAuth = settings.clientAuth()
		now.MinVersion, now.CipherSuites = settings.minVersion, settings.cipherSuites
		return now, nil
	}
	return asking
}
