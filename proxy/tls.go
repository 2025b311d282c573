package proxy

import (
	"crypto/tls"
)

// serverTLS makes the TLS configuration of the server: TLS 1.2 or newer, with the current
// certificate, and a request for client certificates if the current settings say so.
func (s *Server) serverTLS() *tls.Config {
	base := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"}, // see Server.httpServer about HTTP/2
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Current(), nil },
	}
	asking := base.Clone()
	asking.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs, now.ClientAuth = s.settings.Load().clientAuth()
		return now, nil
	}
	return asking
}
