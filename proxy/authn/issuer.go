package authn

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// An Issuer signs JWTs: an OpenID provider, or the API server of a Kubernetes
// cluster. Its keys come from JWKS, or are fetched from JWKSURL, or from where
// discovery at URL says.
type Issuer struct {
	Name     string // by which rules refer to it; "": the URL
	URL      string // what its tokens have as iss
	Audience string // which its tokens must be made for

	JWKS       []byte // a JSON Web Key Set
	JWKSURL    string
	Authority  string // PEM of those that vouch for where keys are fetched; "": the system's
	BearerFile string // holds a token to show to JWKSURL
}

// A JWTRule says which tokens are a user's: those of an issuer with a subject,
// or with all of some claims, or both.
type JWTRule struct {
	Issuer  string // by name
	Subject string
	// Claims that the token must have, with these values: by name, or by JSON
	// pointer (/kubernetes.io/namespace). They are texts, or true or false.
	Claims map[string]string
}

// equalities are all that a rule asks for.
func (r *JWTRule) equalities() map[string]string {
	all := maps.Clone(r.Claims)
	if all == nil {
		all = map[string]string{}
	}
	if r.Subject != "" {
		all["sub"] = r.Subject
	}
	return all
}

// An issuer is one of a configuration, with its keys and whose its tokens are.
type issuer struct {
	name, url, audience string
	source              keySource
	keys                *keyring
	rules               []userRule
	now                 func() time.Time
}

type userRule struct {
	user       string
	equalities map[string]string
}

func newIssuers(users []User, sums *summer, opts Options) (*issuers, error) {
	s := &issuers{byURL: map[string][]*issuer{}, byName: map[string]*issuer{}, sums: sums, memory: newMemory(opts.Now), now: opts.Now}
	var wrong []error
	for _, c := range opts.Issuers {
		if c.Name == "" {
			c.Name = c.URL
		}
		i, err := newIssuer(c, opts)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("issuer %s: %w", c.Name, err))
			continue
		}
		if s.byName[i.name] != nil {
			wrong = append(wrong, fmt.Errorf("issuer %s stands twice: give each a name of its own", i.name))
		}
		s.byName[i.name] = i
		s.byURL[i.url] = append(s.byURL[i.url], i)
	}
	for _, u := range users {
		if u.JWT == nil {
			continue
		}
		if err := s.bind(u.Name, u.JWT); err != nil {
			wrong = append(wrong, fmt.Errorf("user %s: jwt: %w", u.Name, err))
		}
	}
	return s, errors.Join(wrong...)
}

func newIssuer(c Issuer, opts Options) (*issuer, error) {
	i := &issuer{
		name: c.Name, url: c.URL, audience: c.Audience, now: opts.Now,
		source: keySource{issuer: c.URL, jwksURL: c.JWKSURL, authority: c.Authority, bearerFile: c.BearerFile},
	}
	var wrong []error
	if c.URL == "" {
		wrong = append(wrong, errors.New("issuer is missing: it is what its tokens have as iss"))
	}
	if c.Audience == "" {
		wrong = append(wrong, errors.New("audience is missing: without one, tokens that were made for others would open this proxy"))
	}
	if c.JWKS != nil {
		if c.JWKSURL != "" || c.Authority != "" || c.BearerFile != "" {
			wrong = append(wrong, errors.New("jwks_file needs no jwks_url, ca_file or bearer_file"))
		}
		keys, err := parseKeys(c.JWKS)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("jwks_file: %w", err))
		}
		i.keys = fixedKeys(keys, opts.Now)
		return i, errors.Join(wrong...)
	}
	if c.JWKSURL != "" {
		if err := checkURL(c.JWKSURL); err != nil {
			wrong = append(wrong, fmt.Errorf("jwks_url %w", err))
		}
	} else {
		if c.BearerFile != "" {
			wrong = append(wrong, errors.New("bearer_file needs jwks_url, so that it is clear where the token is sent"))
		}
		if err := checkURL(c.URL); err != nil && c.URL != "" {
			wrong = append(wrong, errors.New("give jwks_url or jwks_file: an issuer that is not https:// cannot be asked where its keys are"))
		}
	}
	if _, err := i.source.client(); err != nil {
		wrong = append(wrong, err)
	}
	i.keys = &keyring{fetch: i.source.fetch, now: opts.Now}
	if opts.Former != nil {
		if former := opts.Former.issuers.byName[i.name]; former != nil && former.source == i.source {
			i.keys = former.keys
		}
	}
	return i, errors.Join(wrong...)
}

// bind gives a user the tokens that a rule describes. Two users whose rules one
// token could fulfil are an error: it must not depend on order who somebody is.
func (s *issuers) bind(user string, r *JWTRule) error {
	i := s.byName[r.Issuer]
	if i == nil {
		return fmt.Errorf("the issuer %q is none of oidc", r.Issuer)
	}
	all := r.equalities()
	if len(all) == 0 {
		return errors.New("give a subject or claims: anybody could have a token of the issuer")
	}
	if _, twice := r.Claims["sub"]; twice {
		return errors.New("give the subject as subject, not among claims")
	}
	for path, value := range all {
		if path == "" || value == "" {
			return fmt.Errorf("claim %q: neither its name nor its value may be empty", path)
		}
	}
	for _, other := range i.rules {
		if !disjoint(all, other.equalities) {
			return fmt.Errorf("a token could be that of %s as well: make the two differ in one of subject and claims that both name", other.user)
		}
	}
	i.rules = append(i.rules, userRule{user, all})
	return nil
}

// disjoint tells whether no token can fulfil both: a claim has one value.
func disjoint(a, b map[string]string) bool {
	for path, value := range a {
		if other, both := b[path]; both && other != value {
			return true
		}
	}
	return false
}

// userOf tells whose token makes some claims.
func (i *issuer) userOf(claims map[string]any) (string, error) {
	for _, r := range i.rules {
		fulfilled := true
		for path, want := range r.equalities {
			fulfilled = fulfilled && claimAt(claims, path) == want
		}
		if fulfilled {
			return r.user, nil
		}
	}
	subject, _ := claims["sub"].(string)
	return "", rejected("the token is valid, but no user's: ask whoever runs this proxy to give a user the subject %q of the issuer %s", subject, i.name)
}

// claimAt is the text, or true or false, of a claim; "" if it is anything else.
func claimAt(claims map[string]any, path string) string {
	steps := []string{path}
	if strings.HasPrefix(path, "/") {
		steps = strings.Split(path[1:], "/")
		for n, step := range steps {
			steps[n] = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		}
	}
	var at any = claims
	for _, step := range steps {
		members, _ := at.(map[string]any)
		at = members[step]
	}
	switch v := at.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	}
	return ""
}
