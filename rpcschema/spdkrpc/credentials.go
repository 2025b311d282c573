package spdkrpc

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// credentials creates the header of each request.
type credentials struct {
	fixed     http.Header // must not be modified
	tokenFile string      // if "", fixed is complete
}

func newCredentials(c HTTPSConfig, u *url.URL) (credentials, error) {
	password := c.Username != "" || c.Password != ""
	kinds := 0
	for _, given := range []bool{password, c.Token != "", c.TokenFile != ""} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds > 1:
		return credentials{}, errors.New("credentials: specify exactly one of username and password, token, or token file")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return credentials{}, errors.New("credentials: a client certificate and its key must be used together: specify both, or the same file twice if it contains both")
	case c.CertFile != "" && u.Scheme != "https":
		return credentials{}, errors.New("credentials: a client certificate works only with an https:// URL")
	}
	who := credentials{fixed: http.Header{"Content-Type": {"application/json"}}, tokenFile: c.TokenFile}
	switch {
	case password:
		who.fixed["Authorization"] = []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))}
	case c.Token != "":
		value, err := bearer(c.Token)
		if err != nil {
			return credentials{}, fmt.Errorf("credentials: %w", err)
		}
		who.fixed["Authorization"] = []string{value}
	}
	return who, nil
}

// A CredentialsFileError means that the caller's token file or client certificate cannot be used,
// so the call was not sent. It is the Err of an *Error whose kind is Unreachable.
type CredentialsFileError struct{ Err error }

func (e *CredentialsFileError) Error() string { return e.Err.Error() }

func (e *CredentialsFileError) Unwrap() error { return e.Err }

// header returns a request's header, which the caller must not modify. It reads the token file,
// which takes microseconds, for each request, so that a renewed token takes effect immediately.
func (c *credentials) header() (http.Header, error) {
	if c.tokenFile == "" {
		return c.fixed, nil
	}
	text, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return nil, &CredentialsFileError{fmt.Errorf("read the token: %w", err)}
	}
	value, err := bearer(string(text))
	if err != nil {
		return nil, &CredentialsFileError{fmt.Errorf("read the token from %s: %w", c.tokenFile, err)}
	}
	h := c.fixed.Clone()
	h["Authorization"] = []string{value}
	return h, nil
}

// bearer returns the Authorization header for a token. The error never contains the token.
func bearer(token string) (string, error) {
	token = strings.TrimSpace(token)
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token is empty or malformed: it must be a single ASCII word")
	}
	return "Bearer " + token, nil
}

// clientTLS returns the TLS configuration with the trusted certificate authorities and, if
// configured, the client certificate.
func clientTLS(c HTTPSConfig) *tls.Config {
	t := &tls.Config{RootCAs: c.CA, MinVersion: tls.VersionTLS12}
	if c.CertFile == "" {
		t.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		return t
	}
	// Do not resume TLS sessions, because a resumed session keeps its original certificate.
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, &CredentialsFileError{fmt.Errorf("client certificate: %w", err)}
		}
		return &pair, nil
	}
	return t
}
