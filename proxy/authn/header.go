package authn

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// A scheme is the first word of an Authorization header, in lower case.
type scheme string

const (
	schemeBasic  scheme = "basic"
	schemeBearer scheme = "bearer"
)

// An authorization is a decoded Authorization header.
type authorization struct {
	scheme         scheme
	name, password string // of a Basic header
	token          string // of a Bearer header
}

// parseAuthorization parses the Authorization header of a request. It rejects multiple headers,
// because a gateway in front of the proxy may have checked a different header.
func parseAuthorization(values []string) (authorization, error) {
	if len(values) != 1 {
		return authorization{}, fmt.Errorf("%w: there must be one Authorization header, not %d", ErrNoCredentials, len(values))
	}
	word, rest, _ := strings.Cut(values[0], " ")
	rest = strings.Trim(rest, " ")
	switch scheme(strings.ToLower(word)) {
	case schemeBasic:
		plain, err := base64.StdEncoding.Strict().DecodeString(rest)
		name, password, ok := strings.Cut(string(plain), ":")
		if err != nil || !ok || strings.ContainsAny(rest, "\r\n") {
			return authorization{}, fmt.Errorf("%w: the Basic header is not NAME:PASSWORD in base64", ErrNoCredentials)
		}
		return authorization{scheme: schemeBasic, name: name, password: password}, nil
	case schemeBearer:
		if token := strings.TrimRight(rest, "="); !isToken(token) {
			return authorization{}, fmt.Errorf("%w: the Bearer header has no token", ErrNoCredentials)
		}
		return authorization{scheme: schemeBearer, token: rest}, nil
	}
	return authorization{}, fmt.Errorf("%w: the Authorization header is neither Basic nor Bearer", ErrNoCredentials)
}

// isToken reports whether a string consists of characters that RFC 6750 allows in a token, apart
// from trailing equals signs.
func isToken(text string) bool {
	for i := range len(text) {
		if !tokenCharacters[text[i]] {
			return false
		}
	}
	return text != ""
}

var tokenCharacters = func() (allowed [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/") {
		allowed[c] = true
	}
	return allowed
}()
