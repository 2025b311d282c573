package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
)

// maxIssuerAnswer is the maximum length of an issuer's response, in bytes.
const maxIssuerAnswer = 1 << 20

// A keySource describes how to obtain an issuer's keys. It is comparable, so that a reload can
// detect changes.
type keySource struct {
	issuer     string // URL at which discovery begins
	jwksURL    string // if set, replaces discovery
	authority  string // PEM-encoded certificates; "" means the system's authorities
	bearerFile string // file with a token to send to jwksURL
}

func (s keySource) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	at := s.jwksURL
	if at == "" {
		if at, err = discover(ctx, client, s.issuer); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	if s.bearerFile != "" {
		token, err := os.ReadFile(s.bearerFile) // read each time, because these tokens are renewed
		if err != nil {
			return nil, fmt.Errorf("bearer_file: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fetch keys: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch keys from %s: HTTP %s", at, resp.Status)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("fetch keys from %s: %w", at, err)
	}
	keys, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("keys from %s: %w", at, err)
	}
	return keys, nil
}

// discover returns the URL of an issuer's keys, as found by discovery.
func discover(ctx context.Context, client *http.Client, issuer string) (string, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, client), issuer)
	if err != nil {
		return "", fmt.Errorf("discover %s: %w", issuer, err)
	}
	var document struct {
		JWKSURI string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return "", fmt.Errorf("discover %s: %w", issuer, err)
	}
	if err := checkURL(document.JWKSURI); err != nil {
		return "", fmt.Errorf("discover %s: jwks_uri %w", issuer, err)
	}
	return document.JWKSURI, nil
}

// client returns the HTTP client for a single fetch. Fetches are rare, so the client keeps no
// connections open.
func (s keySource) client() (*http.Client, error) {
	var pool *x509.CertPool
	if s.authority != "" {
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(s.authority)) {
			return nil, errNoAuthority
		}
	}
	return &http.Client{
		Transport: boundedTransport{&http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true,
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		}},
		// Do not follow redirects: they could send the bearer token to another server, or fetch
		// keys from there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

var errNoAuthority = errors.New("ca_file contains no PEM-encoded certificate")

// A boundedTransport limits the length of responses.
type boundedTransport struct{ http.RoundTripper }

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxIssuerAnswer)
	return resp, nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("must be https://HOST/PATH: anyone who can alter the keys in transit can log in as any user")
	}
	return nil
}

// parseKeys parses a JSON Web Key Set. As RFC 7517 requires, it ignores keys that it cannot use to
// verify a token.
func parseKeys(text []byte) (keys []jose.JSONWebKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New(`not a JSON Web Key Set: {"keys": […]}`)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		switch k := key.Key.(type) {
		case *rsa.PublicKey:
			if k.N.BitLen() < 2048 {
				continue
			}
		case *ecdsa.PublicKey, ed25519.PublicKey:
		default:
			continue // for example symmetric keys, which do not identify the signer
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	return keys, nil
}
