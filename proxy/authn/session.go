package authn

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A SignIn contains what a person provides to begin a session. Method determines which of the other
// fields are used. ByCertificate uses no fields, because the certificate belongs to the connection.
type SignIn struct {
	Method         Method // ByPassword, ByToken, ByCertificate or ByCode
	User, Password string
	Token          string // a token of this proxy or of an issuer
	// Code is the code that the issuer sent through the browser. The token issued for it must
	// contain Nonce, and the issuer must have received the hash of Verifier.
	Code, Nonce, Verifier string
}

// A Binding ties a session to the credential with which it began. It does not reveal the
// credential.
type Binding struct {
	// Until is when the credential expires, or zero if it does not expire.
	Until time.Time

	who    Identity
	token  [sha256.Size]byte // hash of the token
	issuer string            // issuer of the JWT
	// mac of the credential in the configuration, or of the certificate
	fingerprint mac
}

// Identity returns the user who signed in, and the credential that was used.
func (b Binding) Identity() Identity { return b.who }

// Holds returns these errors.
var (
	ErrCredentialChanged = errors.New("the credential with which the session began was changed or removed, or has expired")
	ErrOtherConnection   = errors.New("the session belongs to a client certificate that this connection does not have")
)

// TakesPasswords reports whether any user has a password.
func (a *Authenticator) TakesPasswords() bool { return len(a.passwords.hashes) > 0 }

// TakesCertificates reports whether any user can authenticate with a client certificate.
func (a *Authenticator) TakesCertificates() bool {
	return a.certificates.authorities != nil && len(a.certificates.users) > 0
}

// SignIn authenticates a person who begins a session, with the same limits as Authenticate. If
// SignIn returns an error, the Identity describes the failed attempt.
func (a *Authenticator) SignIn(ctx context.Context, in SignIn, e Evidence) (Identity, Binding, error) {
	if a.certificates.required {
		if who, err := a.certificates.check(e.Certificates); err != nil {
			return who, Binding{}, a.failed(e, who, err)
		}
	}
	b, err := a.signIn(ctx, in, e)
	if in.Method != ByPassword && in.Method != ByCode { // these methods count failures themselves
		err = a.failed(e, b.who, err)
	}
	if err != nil {
		return b.who, Binding{}, err
	}
	return b.who, b, nil
}

func (a *Authenticator) signIn(ctx context.Context, in SignIn, e Evidence) (b Binding, err error) {
	switch {
	case in.Method == ByPassword:
		b.who, err = a.passwords.identify(ctx, in.User, in.Password, e.Source)
		b.fingerprint, _ = a.passwordFingerprint(b.who)
	case in.Method == ByCode:
		return a.signInByCode(ctx, in, e)
	case in.Method == ByCertificate && len(e.Certificates) == 0:
		return b, fmt.Errorf("%w: the connection has no client certificate", ErrNoCredentials)
	case in.Method == ByCertificate:
		b.who, err = a.certificates.identify(e.Certificates)
		b.fingerprint, b.Until = a.certificateFingerprint(e), e.Certificates[0].NotAfter
	case !isToken(strings.TrimRight(in.Token, "=")):
		return Binding{who: Identity{Method: ByToken}}, fmt.Errorf("%w: it is not a token", ErrWrongCredentials)
	case strings.HasPrefix(in.Token, TokenPrefix):
		b.who, err = a.tokens.identify(in.Token)
		b.token = sha256.Sum256([]byte(in.Token))
		b.Until = a.tokens.bySum[b.token].hash.NotAfter
	default:
		return a.signInByJWT(ctx, in.Token)
	}
	return b, err
}

func (a *Authenticator) signInByJWT(ctx context.Context, token string) (Binding, error) {
	if len(a.issuers.byURL) == 0 {
		return Binding{who: Identity{Method: ByToken}}, ErrWrongCredentials
	}
	v, err := a.issuers.verify(ctx, token)
	if err != nil {
		return Binding{who: v.who}, err
	}
	b := a.issuers.bindingOf(v.who, v.issuer)
	if expires, ok := v.claims["exp"].(float64); ok {
		b.Until = time.Unix(int64(expires), 0)
	}
	return b, nil
}

// Holds returns nil if the credential of a session still authenticates its user. Therefore, a
// reload ends the sessions of users whose credential it changes or removes. The error is
// ErrCredentialChanged, ErrOtherConnection, or the error for a client certificate that every
// request needs.
func (a *Authenticator) Holds(b Binding, e Evidence) error {
	if a.certificates.required {
		if _, err := a.certificates.check(e.Certificates); err != nil {
			return err
		}
	}
	if !b.Until.IsZero() && !a.tokens.now().Before(b.Until) {
		return ErrCredentialChanged
	}
	same := false
	switch b.who.Method {
	case ByPassword:
		now, ok := a.passwordFingerprint(b.who)
		same = ok && hmac.Equal(now[:], b.fingerprint[:])
	case ByToken:
		stored, ok := a.tokens.bySum[b.token]
		same = ok && stored.user == b.who.User && stored.hash.NotAfter.Equal(b.Until)
	case ByCertificate:
		now := a.certificateFingerprint(e)
		if !hmac.Equal(now[:], b.fingerprint[:]) {
			return ErrOtherConnection
		}
		who, err := a.certificates.identify(e.Certificates)
		same = err == nil && who == b.who
	case ByJWT, ByCode:
		i := a.issuers.byName[b.issuer]
		if i != nil {
			now, ok := a.issuers.fingerprint(i, b.who.User)
			same = ok && hmac.Equal(now[:], b.fingerprint[:])
		}
	}
	if !same {
		return ErrCredentialChanged
	}
	return nil
}

// The mac of a session includes one of these strings, so that it cannot equal the mac of a cached
// credential.
const (
	sessionPassword    Method = "session:basic"
	sessionCertificate Method = "session:certificate"
	sessionJWT         Method = "session:jwt"
)

// passwordFingerprint returns the mac of the hash with which a user signed in, or false if the user
// no longer has that password.
func (a *Authenticator) passwordFingerprint(who Identity) (mac, bool) {
	for _, h := range a.passwords.hashes[who.User] {
		if h.ID() == who.Credential {
			return sumOf(a.passwords.sums, sessionPassword, who.User, fmt.Sprint(h)), true
		}
	}
	return mac{}, false
}

// certificateFingerprint returns the mac of the client's own certificate.
func (a *Authenticator) certificateFingerprint(e Evidence) mac {
	if len(e.Certificates) == 0 {
		return mac{}
	}
	return sumOf(a.certificates.sums, sessionCertificate, e.Certificates[0].Raw)
}

// bindingOf returns the Binding for a session that began with an issuer's token.
func (s *issuers) bindingOf(who Identity, i *issuer) Binding {
	b := Binding{who: who, issuer: i.name}
	b.fingerprint, _ = s.fingerprint(i, who.User)
	return b
}

// fingerprint returns the mac of an issuer and of a user's rule for its tokens, or false if the
// user has no such rule.
func (s *issuers) fingerprint(i *issuer, user string) (mac, bool) {
	for _, r := range i.rules {
		if r.user == user {
			claims, err := json.Marshal(r.claims) // Marshal sorts the claims by name
			if err != nil {
				panic(err) // cannot happen: the claims are strings
			}
			return sumOf(s.sums, sessionJWT, i.url, i.audience, i.source.jwksURL, i.source.authority, string(i.jwks), user, string(claims)), true
		}
	}
	return mac{}, false
}
