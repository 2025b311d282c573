package gate

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/proxy/config"
	"github.com/spdkgate/spdkgate/proxy/decide"
	"github.com/spdkgate/spdkgate/proxy/dryrun"
	"github.com/spdkgate/spdkgate/proxy/execute"
	"github.com/spdkgate/spdkgate/proxy/policy"
	"github.com/spdkgate/spdkgate/proxy/session"
	"github.com/spdkgate/spdkgate/proxy/target"
	"github.com/spdkgate/spdkgate/proxy/tenancy"
)

// Settings is the part of the configuration that a reload replaces. A call uses the same Settings
// from beginning to end.
type Settings struct {
	Authn   *authn.Authenticator
	Policy  *policy.Policy
	Tenancy *tenancy.Tenancy

	MaxBody int
	Read    time.Duration // timeout for a request's body

	AcceptLoading   bool // target.accept_loading_what_hosts_write
	AcceptUncounted bool // target.accept_changes_without_counts

	Console config.Console
	DryRun  *dryrun.DryRun

	// MinVersion and CipherSuites come from config.TLS.Protocol.
	MinVersion   uint16
	CipherSuites []uint16

	// These fields are for the metrics.
	ClientCAsExpire time.Time            // expiry of the first authority
	CRLsExpire      time.Time            // expiry of the first revocation list
	TokensExpire    map[string]time.Time // for each user, the expiry of the first token
	Learning        int                  // number of users in learning mode

	decide         decide.Stages
	timeout        time.Duration
	timeouts       map[string]time.Duration
	snapshotsInUse string // see execute.Command
	documents      *documents

	// These fields are for ClientAuth.
	clientCAs       *x509.CertPool
	needCertificate bool
}

// TimeoutOf returns how long the proxy waits for SPDK's response to a method.
func (s *Settings) TimeoutOf(method string) time.Duration {
	if d, ok := s.timeouts[method]; ok {
		return d
	}
	return s.timeout
}

// ClientAuth returns the authorities for client certificates, and whether a certificate is
// required. Package authn verifies certificates on each request, because connections outlive a
// reload, and because an HTTP response can say what is wrong. After a failed handshake, a client
// could not find out whether its call was executed: in TLS 1.3, a client may send its request
// before the server has seen the certificate. If a certificate is required, it is also verified in
// the handshake, so that clients without one are rejected early.
func (s *Settings) ClientAuth() (*x509.CertPool, tls.ClientAuthType) {
	switch {
	case s.clientCAs == nil:
		return nil, tls.NoClientCert
	case s.needCertificate:
		return s.clientCAs, tls.RequireAndVerifyClientCert
	}
	return s.clientCAs, tls.RequestClientCert
}

// SessionLimits returns the limits of the console's sessions.
func (s *Settings) SessionLimits() session.Limits {
	return session.Limits{Idle: time.Duration(s.Console.Idle), Lifetime: time.Duration(s.Console.Lifetime)}
}

// Administrator reports whether a user administers the proxy, and may therefore see what all users
// do. An administrator has no tenant, and has the built-in role admin, either directly or through a
// role that extends it.
func (s *Settings) Administrator(user string) bool {
	return s.Policy.HasRole(user, policy.Admin) && s.Tenancy.Of(user) == nil
}

func (s *Settings) command(c *Call, conn *target.Conn, decided *decide.Call, scope *tenancy.Scope) execute.Command {
	return execute.Command{
		Conn: conn, User: c.In.Sender.User, Tenant: scope, Method: decided.Method, Params: decided.Params, Observer: c.Observer,
		Timeout: s.TimeoutOf, SnapshotsInUse: s.snapshotsInUse, AcceptLoading: s.AcceptLoading, AcceptUncounted: s.AcceptUncounted,
	}
}
