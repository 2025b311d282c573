package proxy

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/authn"
)

// OIDCConfig is an issuer of JWTs whose tokens may be users'.
type OIDCConfig struct {
	Name       string `yaml:"name"`
	Issuer     string `yaml:"issuer"`
	Audience   string `yaml:"audience"`
	JWKSURL    string `yaml:"jwks_url"`
	JWKSFile   string `yaml:"jwks_file"`
	CAFile     string `yaml:"ca_file"`
	BearerFile string `yaml:"bearer_file"`
}

// newAuthenticator makes the stage that knows who sends a request. What the one
// before it has fetched of issuers is kept.
func newAuthenticator(c *Config, authorities *x509.CertPool, former *authn.Authenticator) (*authn.Authenticator, error) {
	users, err := c.authUsers()
	wrong := []error{err}
	issuers, err := c.issuers()
	if err := errors.Join(append(wrong, err)...); err != nil {
		return nil, err
	}
	return authn.New(users, authn.Options{
		FailuresPerMinute: c.Limits.AuthFailuresPerMinute,
		ClientCAs:         authorities, RequireCertificate: c.TLS.ClientAuth == clientAuthRequired,
		Issuers: issuers, Former: former,
	})
}

// issuers reads what the configuration says of issuers, and asks none of them.
func (c *Config) issuers() (issuers []authn.Issuer, err error) {
	var wrong []error
	for i, o := range c.OIDC {
		issuer := authn.Issuer{Name: o.Name, URL: o.Issuer, Audience: o.Audience, JWKSURL: o.JWKSURL}
		fail := func(key string, err error) {
			wrong = append(wrong, fmt.Errorf("oidc[%d]: %s: %w", i, key, err))
		}
		if o.JWKSFile != "" {
			if issuer.JWKS, err = c.read(o.JWKSFile); err != nil {
				fail("jwks_file", err)
			}
		}
		if o.CAFile != "" {
			text, err := c.read(o.CAFile)
			if err != nil {
				fail("ca_file", err)
			}
			issuer.Authority = string(text)
			if strings.TrimSpace(issuer.Authority) == "" && err == nil {
				fail("ca_file", errors.New("it is empty"))
			}
		}
		if o.BearerFile != "" {
			// Read when it is needed, as it is renewed; here only that it is there.
			if _, err := c.read(o.BearerFile); err != nil {
				fail("bearer_file", err)
			}
			issuer.BearerFile, _ = c.path(o.BearerFile)
		}
		issuers = append(issuers, issuer)
	}
	return issuers, errors.Join(wrong...)
}
