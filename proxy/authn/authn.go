package authn

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Evidence contains everything about a request that can identify its user.
type Evidence struct {
	// Authorization holds the values of all Authorization headers.
	Authorization []string
	// Certificates is the client's certificate chain, starting with the client's own certificate.
	// The TLS handshake has proved that the client has the private key. The chain may be
	// unverified, because Authenticate verifies it on each request.
	Certificates []*x509.Certificate
	Source       netip.Addr
	// Peer is the process that sent a request over a UNIX socket. If Peer is not nil, Authenticate
	// ignores all other fields.
	Peer *Peer
}

// A Method is an authentication method.
type Method string

// These are the names of the methods in the audit log.
const (
	ByPassword    Method = "basic"
	ByToken       Method = "token"
	ByCertificate Method = "certificate"
	ByJWT         Method = "jwt"
	ByPeer        Method = "peer"
	ByCode        Method = "oidc" // sign-in at an issuer's page
)

// An Identity is the user who sent a request. If Authenticate returns an error, the Identity
// describes the failed attempt; it is intended for the log, and must not be sent to the client.
type Identity struct {
	User   string
	Method Method
	// Credential identifies one of the user's credentials without revealing a secret: the id of a
	// password hash or token, the serial number of a certificate, the subject of a JWT, or the uid
	// of a process.
	Credential string
}

// A User is a user of the proxy, with at least one kind of credential.
type User struct {
	Name string
	// at most MaxPasswords password hashes: the current one, and the next or the previous one
	Hashes []Hash
	// several tokens allow a new token to be issued before the old one is removed
	Tokens      []TokenHash
	Certificate *CertificateName // nil if the user has no certificate
	JWT         *JWTRule         // nil if the user has no JWT
	UIDs, GIDs  []uint32         // local users and groups
}

// Options configures an Authenticator. The zero value selects the defaults.
type Options struct {
	FailuresPerMinute int              // failed logins allowed per source and user, on average; 0 selects 20
	Now               func() time.Time // the clock; nil selects time.Now

	// authorities for client certificates; if nil, client certificates are not accepted
	ClientCAs *x509.CertPool
	// the authorities' revocation lists; if nil, revocation is not checked
	Revoked            []*x509.RevocationList
	RequireCertificate bool // every request needs a valid certificate in addition to any other credential

	Issuers []Issuer
	// Former is the Authenticator to be replaced, or nil. The new Authenticator takes over the keys
	// of issuers with unchanged configuration, so that a reload does not depend on the network. It
	// also takes over the failure counts, and the cached logins of users with unchanged passwords.
	Former *Authenticator
}

// Authenticate returns these errors. ErrNoCredentials and ErrWrongCredentials mean that the request
// is not authenticated. ErrBusy and ErrCannotTell mean that the credentials could not be checked,
// and that a retry may help.
var (
	ErrNoCredentials    = errors.New("no credentials")
	ErrWrongCredentials = errors.New("unknown user or wrong credentials")
	ErrBusy             = errors.New("too many logins are being checked")
	ErrCannotTell       = errors.New("the token's issuer does not provide its signing keys")
)

// A RejectedError is an ErrWrongCredentials with a reason that the client may see, because the
// reason does not help in guessing credentials.
type RejectedError struct{ Reason string }

func (e *RejectedError) Error() string { return e.Reason }

func (e *RejectedError) Unwrap() error { return ErrWrongCredentials }

func rejected(format string, args ...any) error {
	return &RejectedError{Reason: fmt.Sprintf(format, args...)}
}

// A TooManyFailuresError replaces the actual error when there have been too many failures. Until
// RetryAfter has passed, passwords are not even checked.
type TooManyFailuresError struct{ RetryAfter time.Duration }

func (e *TooManyFailuresError) Error() string {
	return fmt.Sprintf("too many failed logins: wait %s", e.RetryAfter)
}

// An Authenticator authenticates the users of one configuration. It is safe for concurrent use.
// Options.Former lists the state that survives a reload.
type Authenticator struct {
	passwords    *passwords
	tokens       *tokens
	certificates *certificates
	issuers      *issuers
	locals       *locals
	// limiter limits failures of credentials other than passwords. Passwords have a separate
	// limiter, so that a client with an old token does not lock out users with passwords.
	limiter *limiter
}

// New returns an Authenticator. Users must have distinct names and distinct credentials; the error
// lists all violations.
func New(users []User, opts Options) (*Authenticator, error) {
	if opts.FailuresPerMinute == 0 {
		opts.FailuresPerMinute = 20
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	var wrong []error
	names := map[string]bool{}
	for _, u := range users {
		switch {
		case u.Name == "" || strings.Contains(u.Name, ":"):
			wrong = append(wrong, fmt.Errorf("user name %q: must not be empty or contain a colon, which ends the name in Basic credentials", u.Name))
		case names[u.Name]:
			wrong = append(wrong, fmt.Errorf("user %s is listed twice", u.Name))
		}
		names[u.Name] = true
	}
	if len(users) == 0 {
		wrong = append(wrong, errors.New("there are no users"))
	}
	sums := newMacer()
	if opts.Former != nil {
		sums = opts.Former.passwords.sums // cached logins are MACs computed with this key
	}
	a := &Authenticator{limiter: newLimiter(opts.FailuresPerMinute, opts.Now)}
	var err error
	a.passwords, err = newPasswords(users, sums, opts)
	wrong = append(wrong, err)
	a.tokens, err = newTokens(users, opts.Now)
	wrong = append(wrong, err)
	a.certificates, err = newCertificates(users, sums, opts)
	wrong = append(wrong, err)
	a.issuers, err = newIssuers(users, sums, opts)
	wrong = append(wrong, err)
	a.locals, err = newLocals(users)
	if err := errors.Join(append(wrong, err)...); err != nil {
		return nil, err
	}
	if former := opts.Former; former != nil {
		a.passwords.carryOver(former.passwords)
		if a.limiter.perSecond == former.limiter.perSecond {
			a.limiter = former.limiter
		}
	}
	return a, nil
}

// TakesBearer reports whether any user can authenticate with a bearer token.
func (a *Authenticator) TakesBearer() bool {
	return len(a.tokens.bySum) > 0 || len(a.issuers.byURL) > 0
}

// Authenticate returns the user who sent a request. If there is an Authorization header, only the
// header counts, even if it is wrong or malformed and the client certificate is valid. Therefore,
// clients of an HTTP proxy that presents its own certificate are not mistaken for that
// certificate's user.
//
// The kernel identifies a process on this host, regardless of what the process sends.
func (a *Authenticator) Authenticate(ctx context.Context, e Evidence) (Identity, error) {
	if e.Peer != nil {
		return a.locals.identify(*e.Peer)
	}
	if a.certificates.required {
		if who, err := a.certificates.check(e.Certificates); err != nil {
			return who, a.failed(e, who, err)
		}
	}
	if len(e.Authorization) > 0 {
		return a.byHeader(ctx, e)
	}
	if len(e.Certificates) == 0 {
		return Identity{}, ErrNoCredentials
	}
	who, err := a.certificates.identify(e.Certificates)
	return who, a.failed(e, who, err)
}

func (a *Authenticator) byHeader(ctx context.Context, e Evidence) (Identity, error) {
	c, err := parseAuthorization(e.Authorization)
	if err != nil {
		return Identity{}, err
	}
	var who Identity
	switch {
	case c.scheme == schemeBasic:
		return a.passwords.identify(ctx, c.name, c.password, e.Source)
	case strings.HasPrefix(c.token, TokenPrefix):
		who, err = a.tokens.identify(c.token)
	default:
		who, err = a.issuers.identify(ctx, c.token)
	}
	return who, a.failed(e, who, err)
}

// failed counts a failed attempt, and returns a TooManyFailuresError if there have been too many.
// Nil and other errors are returned unchanged.
func (a *Authenticator) failed(e Evidence, who Identity, err error) error {
	if !errors.Is(err, ErrWrongCredentials) {
		return err
	}
	// The limit applies to each credential, so that clients behind one address do not share a
	// limit.
	if wait := a.limiter.take(e.Source, string(who.Method)+":"+who.User+":"+who.Credential); wait > 0 {
		return &TooManyFailuresError{RetryAfter: wait}
	}
	return err
}
