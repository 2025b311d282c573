package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// settings is the part of the configuration that a reload replaces. A call uses one settings
// value from its beginning to its end.
type settings struct {
	authn   *authn.Authenticator
	policy  *policy.Policy
	tenancy *tenancy.Tenancy

	translate bool // translate calls of old clients, see rpcschema.Method.Fit

	timeout  time.Duration
	timeouts map[string]time.Duration
	maxBody  int
	read     time.Duration // timeout of a request's body

	snapshotsInUse string // see takeSnapshot
	acceptLoading  bool   // target.accept_loading_what_hosts_write

	documents *documents

	console config.Console
	dryRun  *dryrun.DryRun

	// See clientAuth.
	clientCAs       *x509.CertPool
	needCertificate bool

	// See config.TLS.Protocol.
	minVersion   uint16
	cipherSuites []uint16

	// For the metrics.
	clientCAsExpire time.Time            // when the first authority expires
	crlsExpire      time.Time            // when the first list of revoked certificates expires
	tokensExpire    map[string]time.Time // by user: when the first token expires
	learning        int                  // number of users whose role is being learned
}

// timeoutOf is how long the proxy waits for SPDK's answer to a method.
func (s *settings) timeoutOf(method string) time.Duration {
	if d, ok := s.timeouts[method]; ok {
		return d
	}
	return s.timeout
}

// clientAuth returns the authorities of client certificates, and whether a certificate is
// required. Package authn verifies the certificates with each request, because connections
// outlive a reload, and because the client then learns what is wrong. A failed handshake
// would not tell it whether its call was executed: in TLS 1.3, the server sees the certificate
// after the client has sent its request. If a certificate is required, the handshake
// verifies it too, so that clients without one get no further.
func (s *settings) clientAuth() (*x509.CertPool, tls.ClientAuthType) {
	switch {
	case s.clientCAs == nil:
		return nil, tls.NoClientCert
	case s.needCertificate:
		return s.clientCAs, tls.RequireAndVerifyClientCert
	}
	return s.clientCAs, tls.RequestClientCert
}

// sessionLimits are the limits of the console's sessions.
func (s *settings) sessionLimits() session.Limits {
	return session.Limits{Idle: time.Duration(s.console.Idle), Lifetime: time.Duration(s.console.Lifetime)}
}

// administrator reports whether a user administers the proxy, and so may see what all users do: the
// user has the built-in role admin, by itself or through a role that extends it, and no tenant.
func (s *settings) administrator(user string) bool {
	return s.policy.HasRole(user, policy.Admin) && s.tenancy.Of(user) == nil
}
