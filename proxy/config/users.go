package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
)

// User is one user, who is recognised in one way at least.
type User struct {
	Name             string       `yaml:"name"`
	PasswordHash     string       `yaml:"password_hash"`
	PasswordHashFile string       `yaml:"password_hash_file"`
	TokenHashes      []string     `yaml:"token_hashes"`
	TokenHashFile    string       `yaml:"token_hash_file"`
	Certificate      *Certificate `yaml:"certificate"`
	JWT              *JWT         `yaml:"jwt"`
	Roles            []string     `yaml:"roles"`
	Learning         bool         `yaml:"learning"` // see roles.go
	// Tenant is the one that the user belongs to. Without it a user may see
	// everything: so the key must not stand there empty.
	Tenant string `yaml:"tenant" empty:"no"`
}

// Certificate is the one name in a client certificate that is a user's.
type Certificate struct {
	SANDNS   string `yaml:"san_dns"`
	SANURI   string `yaml:"san_uri"`
	SANEmail string `yaml:"san_email"`
	CN       string `yaml:"cn"`
}

// JWT says which of an issuer's tokens are a user's.
type JWT struct {
	Issuer  string            `yaml:"issuer"`
	Subject string            `yaml:"subject"`
	Claims  map[string]string `yaml:"claims"`
}

func (c *Config) validateUsers() error {
	if len(c.Users) == 0 {
		return errors.New("there are no users, so nobody could call anything: give users a name, a password_hash (`spdk-proxy hash-password` makes one) and roles")
	}
	_, err := c.AuthUsers()
	return err
}

// AuthUsers are the users as they are recognised.
func (c *Config) AuthUsers() (users []authn.User, err error) {
	var wrong []error
	for i, u := range c.Users {
		label := fmt.Sprintf("users[%d]", i)
		if u.Name == "" {
			wrong = append(wrong, fmt.Errorf("%s has no name", label))
		} else {
			label += " (" + u.Name + ")"
		}
		user, err := c.authUser(u)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", label, err))
		}
		users = append(users, user)
	}
	return users, errors.Join(wrong...)
}

func (c *Config) authUser(u User) (user authn.User, err error) {
	user.Name = u.Name
	password, tokens := u.PasswordHash != "" || u.PasswordHashFile != "", len(u.TokenHashes) > 0 || u.TokenHashFile != ""
	if u.PasswordHash != "" && u.PasswordHashFile != "" {
		return user, errors.New("give one of password_hash and password_hash_file")
	}
	var wrong []error
	if password {
		user.Hash, err = c.hashOf(u)
		wrong = append(wrong, err)
	}
	if tokens {
		user.Tokens, err = c.tokensOf(u)
		wrong = append(wrong, err)
	}
	if u.Certificate != nil {
		user.Certificate, err = u.Certificate.name()
		wrong = append(wrong, err)
		if c.TLS.ClientCAFile == "" {
			wrong = append(wrong, errors.New("certificate needs tls.client_ca_file: the authorities that vouch for client certificates"))
		}
	}
	if u.JWT != nil {
		user.JWT = &authn.JWTRule{Issuer: u.JWT.Issuer, Subject: u.JWT.Subject, Claims: u.JWT.Claims}
	}
	return user, errors.Join(wrong...)
}

// hashOf reads a user's password hash, from its file if it has one.
func (c *Config) hashOf(u User) (authn.Hash, error) {
	text, key := u.PasswordHash, "password_hash"
	if u.PasswordHashFile != "" {
		key = "password_hash_file"
		read, err := c.read(u.PasswordHashFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		text = strings.TrimSpace(string(read))
	}
	h, err := authn.ParseHash(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return h, nil
}

// tokensOf reads the hashes of a user's tokens: those here and those in a file. A
// file that is empty or missing holds none: were it an error, a reload would keep
// the former configuration, and with it the tokens that were taken away.
func (c *Config) tokensOf(u User) (hashes []authn.TokenHash, err error) {
	var wrong []error
	for i, line := range u.TokenHashes {
		h, err := authn.ParseTokenHash(line)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("token_hashes[%d]: %w", i, err))
		}
		hashes = append(hashes, h)
	}
	if u.TokenHashFile != "" {
		text, err := c.read(u.TokenHashFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("token_hash_file: %w", err)
		}
		more, err := authn.ParseTokenHashes(string(text))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("token_hash_file: %w", err))
		}
		hashes = append(hashes, more...)
	}
	return hashes, errors.Join(wrong...)
}

func (c *Certificate) name() (*authn.CertificateName, error) {
	var given []authn.CertificateName
	for kind, value := range map[authn.NameKind]string{authn.SANDNS: c.SANDNS, authn.SANURI: c.SANURI, authn.SANEmail: c.SANEmail, authn.CN: c.CN} {
		if value != "" {
			given = append(given, authn.CertificateName{Kind: kind, Value: value})
		}
	}
	if len(given) != 1 {
		return nil, errors.New("certificate: give one of san_dns, san_uri, san_email and cn")
	}
	return &given[0], nil
}

// warnAboutCredentials tells which users have no credentials, or no tokens where
// tokens were meant.
func (c *Config) warnAboutCredentials() {
	for _, u := range c.Users {
		hashes, _ := c.tokensOf(u) // was read a moment ago
		switch {
		case u.TokenHashFile != "" && len(hashes) == 0:
			c.warnings = append(c.warnings, fmt.Sprintf("user %s has no token: %s is missing or holds none (spdk-proxy new-token makes one)", u.Name, u.TokenHashFile))
		case u.PasswordHash == "" && u.PasswordHashFile == "" && len(hashes) == 0 && u.Certificate == nil && u.JWT == nil:
			c.warnings = append(c.warnings, fmt.Sprintf("user %s has no credentials, so that nobody can be this user: give one of password_hash, password_hash_file, token_hashes, token_hash_file, certificate and jwt, or take the user away", u.Name))
		}
	}
}

const tokenEndsSoon = 14 * 24 * time.Hour

// warnAboutTokens tells which tokens have expired or will soon.
func (c *Config) warnAboutTokens(now time.Time) {
	for _, u := range c.Users {
		hashes, _ := c.tokensOf(u) // was read a moment ago
		for _, h := range hashes {
			switch {
			case h.NotAfter.IsZero() || h.NotAfter.After(now.Add(tokenEndsSoon)):
			case h.NotAfter.After(now):
				c.warnings = append(c.warnings, fmt.Sprintf("the token %s of %s expires on %s: make another (spdk-proxy new-token)", h.ID(), u.Name, h.NotAfter.Format(time.DateOnly)))
			default:
				c.warnings = append(c.warnings, fmt.Sprintf("the token %s of %s expired on %s: take its hash out", h.ID(), u.Name, h.NotAfter.Format(time.DateOnly)))
			}
		}
	}
}

// TokensExpire tells of each user with tokens that expire when the first does.
func (c *Config) TokensExpire() map[string]time.Time {
	first := map[string]time.Time{}
	for _, u := range c.Users {
		hashes, _ := c.tokensOf(u) // was read a moment ago
		for _, h := range hashes {
			if at, known := first[u.Name]; !h.NotAfter.IsZero() && (!known || h.NotAfter.Before(at)) {
				first[u.Name] = h.NotAfter
			}
		}
	}
	return first
}
