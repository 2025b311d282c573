package authn

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An Issuer signs JWTs. It can be an OpenID provider or the API server of a Kubernetes cluster. Its
// keys are given in JWKS, or are fetched from JWKSURL or from the URL found by discovery at URL.
type Issuer struct {
	Name     string // the name by which rules refer to it; if it is "", they use the URL
	URL      string // the claim iss of the issuer's tokens
	Audience string // the audience required in the issuer's tokens

	JWKS    []byte // a JSON Web Key Set
	JWKSURL string
	// PEM-encoded authorities that sign the TLS certificate of JWKSURL or URL; "" selects the
	// system's authorities
	Authority  string
	BearerFile string // file with a token to send to JWKSURL

	CodeFlow *CodeFlow // nil if the console does not offer to sign in at the issuer's page
}

// A JWTRule defines which tokens authenticate a user: tokens from one issuer with this subject,
// these claims, or both.
type JWTRule struct {
	Issuer  string // the issuer's name
	Subject string
	// Claims maps the name of a claim, or a JSON pointer such as /kubernetes.io/namespace, to the
	// required value. A boolean claim is written as "true" or "false".
	Claims map[string]string
}

// requiredClaims returns all claims that a rule requires, including the subject.
func (r *JWTRule) requiredClaims() map[string]string {
	all := maps.Clone(r.Claims)
	if all == nil {
		all = map[string]string{}
	}
	if r.Subject != "" {
		all["sub"] = r.Subject
	}
	return all
}

// An issuer is an Issuer with its keys and with the users' rules for its tokens.
type issuer struct {
	name, url, audience string
	source              keySource
	keys                *keyring
	jwks                []byte // as in the configuration
	rules               []userRule
	now                 func() time.Time
}

type userRule struct {
	user   string
	claims map[string]string // claims that a token must contain
}

func newIssuers(users []User, sums *macer, opts Options) (*issuers, error) {
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
			wrong = append(wrong, fmt.Errorf("issuer %s is listed twice: give each entry its own name", i.name))
		}
		s.byName[i.name] = i
		if c.CodeFlow != nil {
			if s.flow != nil {
				wrong = append(wrong, fmt.Errorf("issuers %s and %s both have console: keep one, because the console can offer only one sign-in page", s.flow.issuer.name, i.name))
			}
			s.flow = &codeFlow{CodeFlow: *c.CodeFlow, issuer: i}
		}
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
		name: c.Name, url: c.URL, audience: c.Audience, now: opts.Now, jwks: c.JWKS,
		source: keySource{issuer: c.URL, jwksURL: c.JWKSURL, authority: c.Authority, bearerFile: c.BearerFile},
	}
	var wrong []error
	if c.URL == "" {
		wrong = append(wrong, errors.New("issuer is missing: set it to the claim iss of its tokens"))
	}
	if c.Audience == "" {
		wrong = append(wrong, errors.New("audience is missing: without it, tokens for other services would be accepted here"))
	}
	if c.CodeFlow != nil {
		wrong = append(wrong, c.CodeFlow.check(c.URL))
	}
	if c.JWKS != nil {
		if c.JWKSURL != "" || c.Authority != "" || c.BearerFile != "" {
			wrong = append(wrong, errors.New("jwks_file cannot be combined with jwks_url, ca_file or bearer_file"))
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
			wrong = append(wrong, errors.New("bearer_file requires jwks_url, the URL to which the token is sent"))
		}
		if err := checkURL(c.URL); err != nil && c.URL != "" {
			wrong = append(wrong, errors.New("set jwks_url or jwks_file: without either, the issuer must be an https:// URL from which its keys can be discovered"))
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

// bind adds a user's rule. It returns an error if a token could match the rules of two users,
// because the result would depend on the order of the users. It makes one exception: a claim can be
// a list, such as a person's groups. If such a claim matches several users, the first of them
// counts.
func (s *issuers) bind(user string, r *JWTRule) error {
	i := s.byName[r.Issuer]
	if i == nil {
		return fmt.Errorf("oidc has no issuer %q", r.Issuer)
	}
	all := r.requiredClaims()
	if len(all) == 0 {
		return errors.New("set subject or claims: otherwise, every token of the issuer would authenticate this user")
	}
	if _, ok := r.Claims["sub"]; ok {
		return errors.New("set the subject with the key subject, not in claims")
	}
	for path, value := range all {
		if path == "" || value == "" {
			return fmt.Errorf("claim %q: neither its name nor its value may be empty", path)
		}
	}
	for _, other := range i.rules {
		if !disjoint(all, other.claims) {
			return fmt.Errorf("a token could also match user %s: give both users the subject, or the same claim, with different values", other.user)
		}
	}
	i.rules = append(i.rules, userRule{user, all})
	return nil
}

// disjoint reports whether a and b require different values of the same claim. Then no token
// matches both, unless the claim is a list.
func disjoint(a, b map[string]string) bool {
	for path, value := range a {
		if other, both := b[path]; both && other != value {
			return true
		}
	}
	return false
}

// userOf returns the first user whose rule matches the claims.
func (i *issuer) userOf(claims map[string]any) (string, error) {
	for _, r := range i.rules {
		matches := true
		for path, want := range r.claims {
			matches = matches && has(claimAt(claims, path), want)
		}
		if matches {
			return r.user, nil
		}
	}
	subject, _ := claims["sub"].(string)
	return "", rejected("the token is valid, but no user has its subject and claims: ask the administrator of this proxy to add a user with the subject %q of the issuer %s", subject, i.name)
}

// claimAt returns the claim with this name or JSON pointer, or nil if there is none.
func claimAt(claims map[string]any, path string) any {
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
	return at
}

// has reports whether a claim has the value want. The claim may be a string, a boolean, or a list
// of strings that contains want, such as groups.
func has(claim any, want string) bool {
	switch v := claim.(type) {
	case string:
		return v == want
	case bool:
		return strconv.FormatBool(v) == want
	case []any:
		return slices.Contains(v, any(want))
	}
	return false
}
