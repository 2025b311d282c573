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

// algorithms are those that prove who signed: neither "none" nor those with a
// key that both sides know.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

const (
	// clockSkew is how far the issuer's clock may be from ours.
	clockSkew = time.Minute
	// jwtRemembered bounds how long a token is believed without looking at it: a
	// key that the issuer takes back must count some time.
	jwtRemembered = 5 * time.Minute
)

// issuers recognise users by JWTs.
type issuers struct {
	byURL  map[string][]*issuer // two clusters may call themselves the same
	byName map[string]*issuer
	sums   *summer
	memory *memory
	now    func() time.Time
}

// identify tells whose token it is. It returns ErrCannotTell when an issuer that
// it may be from cannot be asked.
func (s *issuers) identify(ctx context.Context, token string) (Identity, error) {
	who := Identity{Method: ByJWT}
	if len(s.byURL) == 0 {
		return Identity{Method: ByToken}, ErrWrongCredentials
	}
	sum := sumOf(s.sums, ByJWT, token)
	if known, ok := s.memory.recall(sum); ok {
		return known, nil
	}
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return who, ErrWrongCredentials
	}
	// What it says itself only chooses whom to ask, and names it in the log.
	var says struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if err := strict.Unmarshal(jws.UnsafePayloadWithoutVerification(), &says); err != nil {
		return who, ErrWrongCredentials
	}
	who.Credential = says.Subject
	err = ErrWrongCredentials
	for _, i := range s.byURL[says.Issuer] {
		claims, until, wrong := i.verify(ctx, token, jws)
		if wrong == nil {
			who.User, wrong = i.userOf(claims)
			if wrong == nil {
				s.memory.keep(sum, who, until)
			}
			return who, wrong
		}
		err = moreConclusive(err, wrong)
	}
	return who, err
}

// moreConclusive is which of two issuers' answers counts: not to know is more than no.
func moreConclusive(a, b error) error {
	var reason *RejectedError
	if errors.Is(b, ErrCannotTell) || errors.As(b, &reason) && !errors.Is(a, ErrCannotTell) {
		return b
	}
	return a
}

// verify holds a token against one issuer, and returns what it claims and until
// when that may be remembered.
func (i *issuer) verify(ctx context.Context, token string, jws *jose.JSONWebSignature) (claims map[string]any, until time.Time, err error) {
	keys, err := i.keys.find(ctx, jws.Signatures[0].Header.KeyID)
	if err != nil {
		return nil, until, fmt.Errorf("issuer %s: %w", i.name, err)
	}
	signature := &signature{jws: jws, keys: keys}
	verifier := oidc.NewVerifier(i.url, signature, &oidc.Config{
		ClientID: i.audience, SupportedSigningAlgs: algorithmNames(),
		Now: func() time.Time { return i.now().Add(-clockSkew) }, // it must not have expired by then
	})
	verified, err := verifier.Verify(ctx, token)
	var expired *oidc.TokenExpiredError
	switch {
	case !signature.good:
		return nil, until, ErrWrongCredentials
	case errors.As(err, &expired):
		return nil, until, rejected("the token expired on %s: come with a new one", expired.Expiry.UTC().Format(time.RFC3339))
	case err != nil:
		return nil, until, rejected("the token is not for this proxy: it must be made for the audience %q", i.audience)
	}
	claims, err = i.claims(verified)
	if err != nil {
		return nil, until, err
	}
	now := i.now()
	return claims, earlier(verified.Expiry.Add(clockSkew), now.Add(jwtRemembered)), nil
}

// claims reads what a verified token claims. Libraries differ in what they make
// of a claim that stands twice or in other letters, so that the issuer may have
// meant another one: here names are exact and stand once, and what the library
// has checked is checked so again (but iss, by which the issuer was chosen).
func (i *issuer) claims(token *oidc.IDToken) (map[string]any, error) {
	var payload json.RawMessage
	claims := map[string]any{}
	if err := token.Claims(&payload); err != nil {
		return nil, ErrWrongCredentials
	}
	if err := strict.Unmarshal(payload, &claims); err != nil {
		return nil, ErrWrongCredentials
	}
	audiences, _ := claims["aud"].([]any)
	if claims["aud"] != i.audience && !slices.Contains(audiences, any(i.audience)) || claims["exp"] == nil {
		return nil, ErrWrongCredentials
	}
	latest := float64(i.now().Add(clockSkew).Unix())
	for _, name := range []string{"nbf", "iat"} {
		switch at, number := claims[name].(float64); {
		case claims[name] == nil:
		case !number:
			return nil, ErrWrongCredentials
		case at > latest:
			return nil, rejected("the token is good only later (%s): the clocks of this proxy and of its issuer must agree to a minute", name)
		}
	}
	return claims, nil
}

// A signature is the keys that may have signed a token.
type signature struct {
	jws  *jose.JSONWebSignature
	keys []jose.JSONWebKey
	good bool
}

// VerifySignature is called by the verifier with the text that jws is of.
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
