package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spdkgate/spdkgate/proxy/authn"
)

// OIDC configures an issuer of JWTs with which users can authenticate.
type OIDC struct {
	Name       string `yaml:"name"`
	Issuer     string `yaml:"issuer"`
	Audience   string `yaml:"audience"`
	JWKSURL    string `yaml:"jwks_url"`
	JWKSFile   string `yaml:"jwks_file"`
	CAFile     string `yaml:"ca_file"`
	BearerFile string `yaml:"bearer_file"`
	// Console lets people sign in to the console at the issuer's page.
	Console *OIDCConsole `yaml:"console"`
}

// OIDCConsole contains the proxy's registration with an issuer.
type OIDCConsole struct {
	ClientID         string   `yaml:"client_id"`
	ClientSecretFile string   `yaml:"client_secret_file"`
	RedirectURL      string   `yaml:"redirect_url"`
	Scopes           []string `yaml:"scopes"`
}

// AuthIssuers returns the issuers for package authn. It reads files, but does not connect to
// issuers.
func (c *Config) AuthIssuers() (issuers []authn.Issuer, err error) {
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
			// The bearer file's content changes, so each fetch reads the file again. Here, only
			// check that it can be read.
			if _, err := c.read(o.BearerFile); err != nil {
				fail("bearer_file", err)
			}
			issuer.BearerFile, _ = c.path(o.BearerFile)
		}
		if k := o.Console; k != nil {
			issuer.CodeFlow = &authn.CodeFlow{ClientID: k.ClientID, RedirectURL: k.RedirectURL, Scopes: k.Scopes}
			if k.ClientSecretFile != "" {
				text, err := c.read(k.ClientSecretFile)
				if err != nil {
					fail("console.client_secret_file", err)
				}
				issuer.CodeFlow.ClientSecret = strings.TrimSpace(string(text))
				if issuer.CodeFlow.ClientSecret == "" && err == nil {
					fail("console.client_secret_file", errors.New("it is empty"))
				}
			}
		}
		issuers = append(issuers, issuer)
	}
	return issuers, errors.Join(wrong...)
}
