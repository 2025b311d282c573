package authn

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// TokenPrefix is the beginning of every bearer token that this proxy creates. It makes tokens
// recognizable for people and secret scanners: spdkgate_[0-9A-Za-z]{46}.
const TokenPrefix = "spdkgate_"

const (
	// number of random characters of 5.95 bits each: enough entropy for a fast hash
	tokenRandom   = 40
	tokenChecksum = 6
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewToken creates a bearer token. Its last characters are a checksum, which reveals truncated and
// mistyped tokens, and saves scanners from false alarms.
func NewToken() string {
	text := []byte(TokenPrefix)
	for len(text) < len(TokenPrefix)+tokenRandom {
		for _, b := range random(tokenRandom) {
			// skip some values, so that all characters are equally likely
			if b < 4*62 && len(text) < len(TokenPrefix)+tokenRandom {
				text = append(text, base62[b%62])
			}
		}
	}
	return string(text) + checksum(string(text))
}

func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	var digits [tokenChecksum]byte // 62^6 > 2^32
	for i := range digits {
		digits[tokenChecksum-1-i] = base62[sum%62]
		sum /= 62
	}
	return string(digits[:])
}

// isComplete reports whether a token has the length, prefix and checksum of a token created by
// NewToken.
func isComplete(token string) bool {
	if !strings.HasPrefix(token, TokenPrefix) || len(token) != len(TokenPrefix)+tokenRandom+tokenChecksum {
		return false
	}
	body := token[:len(token)-tokenChecksum]
	return checksum(body) == token[len(body):]
}

// A TokenHash is the stored form of a token: its SHA-256 and its expiry. It is not secret.
type TokenHash struct {
	sum      [sha256.Size]byte
	NotAfter time.Time // zero if the token does not expire
}

// HashToken returns the hash of a token.
func HashToken(token string, notAfter time.Time) TokenHash {
	return TokenHash{sum: sha256.Sum256([]byte(token)), NotAfter: notAfter.UTC().Truncate(time.Second)}
}

const (
	hashAlgorithm = "sha256:"
	hashNotAfter  = "not_after="
)

// ID returns the beginning of the hash, which identifies a token in logs.
func (h TokenHash) ID() string { return hex.EncodeToString(h.sum[:4]) }

// String returns the line that ParseTokenHash parses.
func (h TokenHash) String() string {
	line := hashAlgorithm + hex.EncodeToString(h.sum[:])
	if !h.NotAfter.IsZero() {
		line += " " + hashNotAfter + h.NotAfter.Format(time.RFC3339)
	}
	return line
}

// ParseTokenHash parses "sha256:HEX", followed by "not_after=2027-01-31T00:00:00Z" if the token
// expires, and an optional comment after a #. The error never contains the text.
func ParseTokenHash(line string) (h TokenHash, err error) {
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(line)
	switch {
	case strings.Contains(line, TokenPrefix):
		return h, errors.New("this is a token, not its hash: stop using it, make a new one with `spdk-proxy new-token`, and put its hash here")
	case len(words) == 0 || len(words) > 2 || !strings.HasPrefix(words[0], hashAlgorithm):
		return h, errTokenHash
	}
	sum, err := hex.DecodeString(strings.TrimPrefix(words[0], hashAlgorithm))
	if err != nil || len(sum) != sha256.Size {
		return h, errTokenHash
	}
	copy(h.sum[:], sum)
	if len(words) == 2 {
		text, ok := strings.CutPrefix(words[1], hashNotAfter)
		at, err := time.Parse(time.RFC3339, text)
		if !ok || err != nil {
			return h, errTokenHash
		}
		h.NotAfter = at.UTC()
	}
	return h, nil
}

var errTokenHash = errors.New("not the hash of a token: it must have the form `sha256:` and 64 hexadecimal digits, followed by `not_after=2027-01-31T00:00:00Z` if the token expires. Create one with `spdk-proxy new-token`")

// ParseTokenHashes parses a file with one token hash per line. Empty lines and comments are
// ignored.
func ParseTokenHashes(text string) (hashes []TokenHash, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if before, _, _ := strings.Cut(line, "#"); strings.TrimSpace(before) == "" {
			continue
		}
		h, wrong := ParseTokenHash(line)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("line %d: %w", number, wrong))
			continue
		}
		hashes = append(hashes, h)
	}
	return hashes, err
}

// tokens authenticates users by the hashes of their tokens.
//
// A look-up in the map does not take constant time. This is harmless, because the duration could
// reveal only part of a token's SHA-256, and even the whole hash would not reveal the token.
type tokens struct {
	bySum map[[sha256.Size]byte]storedToken
	now   func() time.Time
}

type storedToken struct {
	user string
	hash TokenHash
}

func newTokens(users []User, now func() time.Time) (*tokens, error) {
	t := &tokens{bySum: map[[sha256.Size]byte]storedToken{}, now: now}
	var wrong []error
	for _, u := range users {
		for _, h := range u.Tokens {
			if other, taken := t.bySum[h.sum]; taken {
				wrong = append(wrong, fmt.Errorf("token %s is listed for user %s and for user %s: each user needs its own token", h.ID(), other.user, u.Name))
			}
			t.bySum[h.sum] = storedToken{u.Name, h}
		}
	}
	return t, errors.Join(wrong...)
}

func (t *tokens) identify(token string) (Identity, error) {
	if !isComplete(token) {
		return Identity{Method: ByToken}, rejected("the token is incomplete or mistyped: send it exactly as it was issued")
	}
	stored, ok := t.bySum[sha256.Sum256([]byte(token))]
	if !ok {
		return Identity{Method: ByToken}, ErrWrongCredentials
	}
	who := Identity{User: stored.user, Method: ByToken, Credential: stored.hash.ID()}
	if until := stored.hash.NotAfter; !until.IsZero() && !t.now().Before(until) {
		return who, rejected("the token expired on %s: ask the administrator of this proxy for a new one", until.Format(time.RFC3339))
	}
	return who, nil
}
