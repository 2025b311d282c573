package authn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	strict "github.com/go-json-experiment/json"
)

// algorithms lists the accepted signature algorithms. All of them use public keys; "none" and HMACs
// are not accepted.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	// clockSkew is the tolerated difference between the issuer's clock and the proxy's.
	clockSkew = time.Minute
	// jwtRemembered is how long a verified token is cached at most. The limit ensures that a key
	// withdrawn by the issuer soon stops working.
	jwtRemembered = 5 * time.Minute
)

// issuers authenticates users by JWTs.
type issuers struct {
	byURL  map[string][]*issuer // lists, because two clusters may have the same URL
	byName map[string]*issuer
	flow   *codeFlow // nil if no issuer has a code flow
	sums   *macer
	memory *memory
	now    func() time.Time
}

// identify returns the user identified by a token. If an issuer may have signed the token but its
// keys are unavailable, the error is ErrCannotTell.
func (s *issuers) identify(ctx context.Context, token string) (Identity, error) {
	if len(s.byURL) == 0 {
		return Identity{Method: ByToken}, ErrWrongCredentials
	}
	sum := sumOf(s.sums, ByJWT, token)
	if known, ok := s.memory.recall(sum); ok {
		return known, nil
	}
	v, err := s.verify(ctx, token)
	if err == nil {
		s.memory.keep(sum, v.who, v.until)
	}
	return v.who, err
}

// A verifiedToken is a token that an issuer signed for a user.
type verifiedToken struct {
	who    Identity
	issuer *issuer
	claims map[string]any
	until  time.Time // when the token must be verified again
}

// verify verifies a token. If it returns an error, the result contains unverified data from the
// token.
func (s *issuers) verify(ctx context.Context, token string) (verifiedToken, error) {
	v := verifiedToken{who: Identity{Method: ByJWT}}
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return v, ErrWrongCredentials
	}
	// Use unverified claims only to choose the issuer, and for the log.
	var unverified struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if err := strict.Unmarshal(jws.UnsafePayloadWithoutVerification(), &unverified); err != nil {
		return v, ErrWrongCredentials
	}
	v.who.Credential = unverified.Subject
	err = ErrWrongCredentials
	for _, i := range s.byURL[unverified.Issuer] {
		claims, until, wrong := i.verify(ctx, token, jws, i.audience)
		if wrong == nil {
			v.issuer, v.claims, v.until = i, claims, until
			v.who.User, wrong = i.userOf(claims)
			return v, wrong
		}
		err = moreConclusive(err, wrong)
	}
	return v, err
}

// moreConclusive selects the error to report if two issuers with the same URL reject a token.
// ErrCannotTell takes precedence over errors with a reason, which take precedence over all other
// errors.
func moreConclusive(a, b error) error {
	var reason *RejectedError
	if errors.Is(b, ErrCannotTell) || errors.As(b, &reason) && !errors.Is(a, ErrCannotTell) {
		return b
	}
	return a
}

// verify verifies a token with the keys of one issuer and for this audience. It returns the claims,
// and the time until which the result may be cached.
func (i *issuer) verify(ctx context.Context, token string, jws *jose.JSONWebSignature, audience string) (claims map[string]any, until time.Time, err error) {
	keys, err := i.keys.find(ctx, jws.Signatures[0].Header.KeyID)
	if err != nil {
		return nil, until, fmt.Errorf("issuer %s: %w", i.name, err)
	}
	signature := &signature{jws: jws, keys: keys}
	verifier := oidc.NewVerifier(i.url, signature, &oidc.Config{
		ClientID: audience, SupportedSigningAlgs: algorithmNames(),
		// clocks may differ, so accept tokens that have just expired
		Now: func() time.Time { return i.now().Add(-clockSkew) },
	})
	verified, err := verifier.Verify(ctx, token)
	var expired *oidc.TokenExpiredError
	switch {
	case !signature.good:
		return nil, until, ErrWrongCredentials
	case errors.As(err, &expired):
		return nil, until, rejected("the token expired on %s: send a new one", expired.Expiry.UTC().Format(time.RFC3339))
	case err != nil:
		return nil, until, rejected("the token is not for this proxy: request one with the audience %q", audience)
	}
	claims, err = i.claims(verified, audience)
	if err != nil {
		return nil, until, err
	}
	now := i.now()
	return claims, earlier(verified.Expiry.Add(clockSkew), now.Add(jwtRemembered)), nil
}

// claims reads the claims of a verified token. If a claim occurs twice or with a different letter
// case, libraries disagree about its value, and the issuer may have meant the other value.
// Therefore, claims requires that each name matches exactly and occurs once, and repeats the
// library's checks. It does not check iss, which determined the issuer.
func (i *issuer) claims(token *oidc.IDToken, audience string) (map[string]any, error) {
	var payload json.RawMessage
	claims := map[string]any{}
	if err := token.Claims(&payload); err != nil {
		return nil, ErrWrongCredentials
	}
	if err := strict.Unmarshal(payload, &claims); err != nil {
		return nil, ErrWrongCredentials
	}
	audiences, _ := claims["aud"].([]any)
	if claims["aud"] != audience && !slices.Contains(audiences, any(audience)) || claims["exp"] == nil {
		return nil, ErrWrongCredentials
	}
	latest := float64(i.now().Add(clockSkew).Unix())
	for _, name := range []string{"nbf", "iat"} {
		switch at, number := claims[name].(float64); {
		case claims[name] == nil:
		case !number:
			return nil, ErrWrongCredentials
		case at > latest:
			return nil, rejected("the token is not valid yet (%s): set the clocks of this proxy and of the issuer, which may differ by a minute", name)
		}
	}
	return claims, nil
}

// A signature is an oidc.KeySet that contains the keys that may have signed a token.
type signature struct {
	jws  *jose.JSONWebSignature
	keys []jose.JSONWebKey
	good bool
}

// VerifySignature verifies the signature of jws and returns the payload. It ignores its second
// parameter, the text of jws.
func (s *signature) VerifySignature(context.Context, string) ([]byte, error) {
	algorithm := s.jws.Signatures[0].Header.Algorithm
	for _, key := range s.keys {
		if key.Algorithm != "" && key.Algorithm != algorithm {
			continue
		}
		if payload, err := s.jws.Verify(key.Key); err == nil {
			s.good = true
			return payload, nil
		}
	}
	return nil, ErrWrongCredentials
}

func algorithmNames() (names []string) {
	for _, a := range algorithms {
		names = append(names, string(a))
	}
	return names
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
