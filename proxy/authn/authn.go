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

// Evidence is all that a request says about who sends it.
type Evidence struct {
	// Authorization are the values of all its Authorization headers.
	Authorization []string
	// Certificates are what the client showed when it connected, its own first, of
	// which it has proved to hold the key. They need not have been verified: they
	// are here, for each request anew.
	Certificates []*x509.Certificate
	Source       netip.Addr
}

// A Method is how a user was recognised.
type Method string

// The methods.
const (
	ByPassword    Method = "basic"
	ByToken       Method = "token"
	ByCertificate Method = "certificate"
	ByJWT         Method = "jwt"
)

// An Identity is who sends a request. Beside an error it is what is known of
// who tried, for the log and never for the client.
type Identity struct {
	User   string
	Method Method
	// Credential tells which of a user's credentials it was, and no secret: a
	// token's id, a certificate's serial number, a JWT's subject.
	Credential string
}

// A User is one that may come, in one way at least.
type User struct {
	Name        string
	Hash        Hash             // of the password; nil: none
	Tokens      []TokenHash      // several, so that a new one can be handed out before the old one goes
	Certificate *CertificateName // nil: none
	JWT         *JWTRule         // nil: none
}

// Options of an Authenticator; the zero value holds the defaults.
type Options struct {
	FailuresPerMinute int              // allowed to one source and user in the long run; 0: 20
	Now               func() time.Time // the clock; nil: time.Now

	ClientCAs          *x509.CertPool // who vouches for client certificates; nil: nobody
	RequireCertificate bool           // whatever else a request brings, it needs a valid certificate

	Issuers []Issuer
	// Former is the one that this one replaces. Keys that it has fetched of an issuer
	// that stayed as it was are kept, so that a reload needs no network; so are its
	// limits on failures, and the logins of users whose password has not changed.
	Former *Authenticator
}

// Why a request has no user. Both credentials errors mean: not authenticated.
// ErrBusy and ErrCannotTell mean: it could not be told, and may be another time.
var (
	ErrNoCredentials    = errors.New("no credentials were given")
	ErrWrongCredentials = errors.New("unknown user or wrong credentials")
	ErrBusy             = errors.New("too many logins are being checked")
	ErrCannotTell       = errors.New("the issuer of the token cannot be asked for its keys")
)

// A RejectedError is ErrWrongCredentials with a reason that its client may be
// told, since it tells nothing that could be guessed.
type RejectedError struct{ Reason string }

func (e *RejectedError) Error() string { return e.Reason }

func (e *RejectedError) Unwrap() error { return ErrWrongCredentials }

func rejected(format string, args ...any) error {
	return &RejectedError{Reason: fmt.Sprintf(format, args...)}
}

// A TooManyFailuresError is given instead of what was wrong, to passwords
// without looking at them.
type TooManyFailuresError struct{ RetryAfter time.Duration }

func (e *TooManyFailuresError) Error() string {
	return fmt.Sprintf("too many failed logins: wait %s", e.RetryAfter)
}

// An Authenticator knows the users of one configuration. It may be used
// concurrently. What it remembers ends with it, but see Options.Former.
type Authenticator struct {
	passwords    *passwords
	tokens       *tokens
	certificates *certificates
	issuers      *issuers
	// Of what can be checked quickly, only failures count; and not those of
	// passwords, so that a client with an old token is in nobody's way.
	limiter *limiter
}

// New makes an Authenticator of users with distinct names and credentials.
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
			wrong = append(wrong, fmt.Errorf("user %s stands twice", u.Name))
		}
		names[u.Name] = true
	}
	if len(users) == 0 {
		wrong = append(wrong, errors.New("there are no users"))
	}
	sums := newSummer()
	if opts.Former != nil {
		sums = opts.Former.passwords.sums // with its key, or nothing would be recognised
	}
	a := &Authenticator{passwords: newPasswords(users, sums, opts), limiter: newLimiter(opts.FailuresPerMinute, opts.Now)}
	var err error
	a.tokens, err = newTokens(users, opts.Now)
	wrong = append(wrong, err)
	a.certificates, err = newCertificates(users, sums, opts)
	wrong = append(wrong, err)
	a.issuers, err = newIssuers(users, sums, opts)
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

// TakesBearer tells whether anybody could come with a bearer token.
func (a *Authenticator) TakesBearer() bool {
	return len(a.tokens.bySum) > 0 || len(a.issuers.byURL) > 0
}

// Authenticate tells whose request it is. An Authorization header that is there
// decides alone: if it is wrong, or cannot be understood, no certificate makes
// up for it, and with it nobody is taken for somebody else by the certificate
// of the machine that they came through.
func (a *Authenticator) Authenticate(ctx context.Context, e Evidence) (Identity, error) {
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

// failed counts a failure, and tells whoever fails too often to wait. To what
// could not be told, and to success, it does nothing.
func (a *Authenticator) failed(e Evidence, who Identity, err error) error {
	if !errors.Is(err, ErrWrongCredentials) {
		return err
	}
	// By what they came with, so that those who share an address don't share it.
	if wait := a.limiter.take(e.Source, string(who.Method)+":"+who.User+":"+who.Credential); wait > 0 {
		return &TooManyFailuresError{RetryAfter: wait}
	}
	return err
}
