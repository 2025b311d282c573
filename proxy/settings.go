package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// settings are what a reload replaces as a whole: each call sees one state of
// the configuration from its beginning to its end.
type settings struct {
	authn   *authn.Authenticator
	policy  *policy.Policy
	tenancy *tenancy.Tenancy

	translate bool // calls of old clients, see rpcschema.Method.Fit

	timeout  time.Duration
	timeouts map[string]time.Duration
	maxBody  int
	read     time.Duration

	snapshotsInUse string // see takeSnapshot

	documents *documents

	// See clientAuth.
	clientCAs       *x509.CertPool
	clientCAsExpire time.Time // the first of them

	// For the metrics.
	tokensExpire    map[string]time.Time // by user, the first of them
	learning        int                  // users
	needCertificate bool
}

// timeoutOf is how long the answer to a method is waited for.
func (s *settings) timeoutOf(method string) time.Duration {
	if d, ok := s.timeouts[method]; ok {
		return d
	}
	return s.timeout
}

// clientAuth is whose client certificates are taken, and whether one is needed.
// They are verified with each request (package authn): connections outlive a
// reload, and a client can be told what is wrong. In the handshake it could not,
// and would not know whether its call was made: by TLS 1.3 a server looks at the
// certificate when the client has sent its request already. Where one is required,
// strangers get no further than the handshake all the same.
func (s *settings) clientAuth() (*x509.CertPool, tls.ClientAuthType) {
	switch {
	case s.clientCAs == nil:
		return nil, tls.NoClientCert
	case s.needCertificate:
		return s.clientCAs, tls.RequireAndVerifyClientCert
	}
	return s.clientCAs, tls.RequestClientCert
}
