package config

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/spdkgate/spdkgate/proxy/authn"
	"github.com/spdkgate/spdkgate/rpcschema/printable"
)

// User describes a user, who has at least one kind of credential.
type User struct {
	Name             string       `yaml:"name"`
	PasswordHash     string       `yaml:"password_hash"`
	PasswordHashes   []string     `yaml:"password_hashes"`
	PasswordHashFile string       `yaml:"password_hash_file"`
	TokenHashes      []string     `yaml:"token_hashes"`
	TokenHashFile    string       `yaml:"token_hash_file"`
	Certificate      *Certificate `yaml:"certificate"`
	JWT              *JWT         `yaml:"jwt"`
	Local            *Local       `yaml:"local"`
	Roles            []string     `yaml:"roles"`
	Learning         bool         `yaml:"learning"` // see roles.go
	// Tenant is the user's tenant. An empty value is an error, because a user without a tenant may
	// see everything.
	Tenant string `yaml:"tenant" empty:"no"`
}

// Certificate contains the name in a client certificate by which a user is identified.
type Certificate struct {
	SANDNS   string `yaml:"san_dns"`
	SANURI   string `yaml:"san_uri"`
	SANEmail string `yaml:"san_email"`
	CN       string `yaml:"cn"`
}

// JWT selects the tokens of an issuer that authenticate a user.
type JWT struct {
	Issuer  string            `yaml:"issuer"`
	Subject string            `yaml:"subject"`
	Claims  map[string]string `yaml:"claims"`
}

func (c *Config) validateUsers() error {
	if len(c.Users) == 0 {
		return errors.New("there are no users: add a user with a name, a password_hash (`spdk-proxy hash-password` creates one) and roles")
	}
	_, err := c.AuthUsers()
	return err
}

// AuthUsers returns the users for package authn.
func (c *Config) AuthUsers() (users []authn.User, err error) {
	var wrong []error
	for i, u := range c.Users {
		label := fmt.Sprintf("users[%d]", i)
		switch {
		case u.Name == "":
			wrong = append(wrong, fmt.Errorf("%s has no name", label))
		case !printable.Valid(u.Name):
			wrong = append(wrong, fmt.Errorf("%s: the name %+q has control characters or characters that change the direction of text: remove them", label, u.Name))
		default:
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
	var wrong []error
	user.Hashes, err = c.hashesOf(u)
	wrong = append(wrong, err)
	user.Tokens, err = c.tokensOf(u)
	wrong = append(wrong, err)
	if u.Certificate != nil {
		user.Certificate, err = u.Certificate.name()
		wrong = append(wrong, err)
		if c.TLS.ClientCAFile == "" {
			wrong = append(wrong, errors.New("certificate needs tls.client_ca_file, the authorities that sign client certificates"))
		}
	}
	if u.JWT != nil {
		user.JWT = &authn.JWTRule{Issuer: u.JWT.Issuer, Subject: u.JWT.Subject, Claims: u.JWT.Claims}
	}
	if u.Local != nil {
		user.UIDs, user.GIDs, err = u.Local.ids()
		wrong = append(wrong, err)
		if c.ListenUnix.Path == "" {
			wrong = append(wrong, errors.New("local needs listen_unix, the socket for programs of this host"))
		}
	}
	return user, errors.Join(wrong...)
}

// hashesOf returns a user's password hashes from the configuration and from a file.
func (c *Config) hashesOf(u User) (hashes []authn.Hash, err error) {
	var wrong []error
	add := func(key, text string) {
		h, err := authn.ParseHash(text)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", key, err))
			return
		}
		hashes = append(hashes, h)
	}
	if u.PasswordHash != "" {
		add("password_hash", u.PasswordHash)
	}
	for i, text := range u.PasswordHashes {
		add(fmt.Sprintf("password_hashes[%d]", i), text)
	}
	if u.PasswordHashFile != "" {
		more, err := c.readHashes(u.PasswordHashFile)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("password_hash_file: %w", err))
		}
		hashes = append(hashes, more...)
	}
	return hashes, errors.Join(wrong...)
}

// readHashes reads a file of password hashes. Unlike a token file, it must contain at least one
// hash: a user who is locked out by mistake could not correct the file.
func (c *Config) readHashes(path string) ([]authn.Hash, error) {
	text, err := c.read(path)
	if err != nil {
		return nil, err
	}
	hashes, err := authn.ParseHashes(string(text))
	if err == nil && len(hashes) == 0 {
		err = errors.New("it contains no hash: `spdk-proxy hash-password` creates one")
	}
	return hashes, err
}

// tokensOf returns a user's token hashes from the configuration and from a file. An empty or
// missing file means that there are no tokens. If a missing file were an error, a reload would keep
// the old configuration, and the removed tokens would remain valid.
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
		return nil, errors.New("certificate: set exactly one of san_dns, san_uri, san_email and cn")
	}
	return &given[0], nil
}

// warnAboutCredentials adds warnings about users without credentials, and about token files without
// tokens.
func (c *Config) warnAboutCredentials() {
	for _, u := range c.Users {
		hashes, _ := c.tokensOf(u) // cannot fail: the file has just been read
		switch {
		case u.TokenHashFile != "" && len(hashes) == 0:
			c.warnings = append(c.warnings, fmt.Sprintf("user %s has no token: %s is missing or empty (spdk-proxy new-token creates one)", u.Name, u.TokenHashFile))
		case u.PasswordHash == "" && len(u.PasswordHashes) == 0 && u.PasswordHashFile == "" && len(hashes) == 0 && u.Certificate == nil && u.JWT == nil && u.Local == nil:
			c.warnings = append(c.warnings, fmt.Sprintf("user %s has no credentials and cannot log in: set one of password_hash, password_hashes, password_hash_file, token_hashes, token_hash_file, certificate, jwt and local, or remove the user", u.Name))
		}
	}
}

const tokenEndsSoon = 14 * 24 * time.Hour

// warnAboutTokens adds warnings about tokens that have expired or will expire soon.
func (c *Config) warnAboutTokens(now time.Time) {
	for _, u := range c.Users {
		hashes, _ := c.tokensOf(u) // cannot fail: the file has just been read
		for _, h := range hashes {
			switch {
			case h.NotAfter.IsZero() || h.NotAfter.After(now.Add(tokenEndsSoon)):
			case h.NotAfter.After(now):
				c.warnings = append(c.warnings, fmt.Sprintf("token %s of user %s expires on %s: create another one (spdk-proxy new-token)", h.ID(), u.Name, h.NotAfter.Format(time.DateOnly)))
			default:
				c.warnings = append(c.warnings, fmt.Sprintf("token %s of user %s expired on %s: remove its hash", h.ID(), u.Name, h.NotAfter.Format(time.DateOnly)))
			}
		}
	}
}

// TokensExpire returns, for each user, when the first of the user's tokens expires.
func (c *Config) TokensExpire() map[string]time.Time {
	first := map[string]time.Time{}
	for _, u := range c.Users {
		hashes, _ := c.tokensOf(u) // cannot fail: the file has just been read
		for _, h := range hashes {
			if at, known := first[u.Name]; !h.NotAfter.IsZero() && (!known || h.NotAfter.Before(at)) {
				first[u.Name] = h.NotAfter
			}
		}
	}
	return first
}
