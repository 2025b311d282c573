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

// TokenPrefix begins every bearer token that this proxy makes, so that people
// and secret scanners know one when they see it: spdkgate_[0-9A-Za-z]{46}.
const TokenPrefix = "spdkgate_"

const (
	tokenRandom   = 40 // characters, of 5.95 bits each: no guessing, so no slow hash
	tokenChecksum = 6
	base62        = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewToken makes a bearer token. Its last characters are a checksum, so that
// whoever mistyped or cut one is told, and scanners raise no false alarm.
func NewToken() string {
	text := []byte(TokenPrefix)
	for len(text) < len(TokenPrefix)+tokenRandom {
		for _, b := range random(tokenRandom) {
			if b < 4*62 && len(text) < len(TokenPrefix)+tokenRandom { // each character as likely as any other
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

// wholeToken tells whether a token is one that was made by NewToken, and whole.
func wholeToken(token string) bool {
	if !strings.HasPrefix(token, TokenPrefix) || len(token) != len(TokenPrefix)+tokenRandom+tokenChecksum {
		return false
	}
	body := token[:len(token)-tokenChecksum]
	return checksum(body) == token[len(body):]
}

// A TokenHash is what is stored of a token: its SHA-256, and until when it is
// good. It is no secret.
type TokenHash struct {
	sum      [sha256.Size]byte
	NotAfter time.Time // zero: for ever
}

// HashToken makes the hash of a token.
func HashToken(token string, notAfter time.Time) TokenHash {
	return TokenHash{sum: sha256.Sum256([]byte(token)), NotAfter: notAfter.UTC().Truncate(time.Second)}
}

const (
	hashAlgorithm = "sha256:"
	hashNotAfter  = "not_after="
)

// ID names a token where it must not be shown itself: the beginning of its hash.
func (h TokenHash) ID() string { return hex.EncodeToString(h.sum[:4]) }

// String is the line that ParseTokenHash reads.
func (h TokenHash) String() string {
	line := hashAlgorithm + hex.EncodeToString(h.sum[:])
	if !h.NotAfter.IsZero() {
		line += " " + hashNotAfter + h.NotAfter.Format(time.RFC3339)
	}
	return line
}

// ParseTokenHash reads "sha256:HEX", with "not_after=2027-01-31T00:00:00Z"
// behind it if the token expires, and a comment after a #. Its errors never
// repeat the text.
func ParseTokenHash(line string) (h TokenHash, err error) {
	line, _, _ = strings.Cut(line, "#")
	words := strings.Fields(line)
	switch {
	case strings.Contains(line, TokenPrefix):
		return h, errors.New("that is a token itself, which must not be kept here: take it out of use and put the hash of a new one, which `spdk-proxy new-token` makes")
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

var errTokenHash = errors.New("not the hash of a token, which looks like sha256:64 hexadecimal digits, with not_after=2027-01-31T00:00:00Z behind it if it expires: `spdk-proxy new-token` makes one")

// ParseTokenHashes reads a file of such lines, of which some or all may be empty.
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

// tokens recognise users by the hashes of their tokens.
//
// Looking a hash up in a map is not done in constant time, and need not be: what
// its duration tells is something about the SHA-256 of a guess and of tokens,
// and who knew all of a token's hash could not find the token.
type tokens struct {
	bySum map[[sha256.Size]byte]heldToken
	now   func() time.Time
}

type heldToken struct {
	user string
	hash TokenHash
}

func newTokens(users []User, now func() time.Time) (*tokens, error) {
	t := &tokens{bySum: map[[sha256.Size]byte]heldToken{}, now: now}
	var wrong []error
	for _, u := range users {
		for _, h := range u.Tokens {
			if other, twice := t.bySum[h.sum]; twice {
				wrong = append(wrong, fmt.Errorf("the token %s of %s is one of %s already: each needs its own", h.ID(), u.Name, other.user))
			}
			t.bySum[h.sum] = heldToken{u.Name, h}
		}
	}
	return t, errors.Join(wrong...)
}

func (t *tokens) identify(token string) (Identity, error) {
	if !wholeToken(token) {
		return Identity{Method: ByToken}, rejected("the token is not whole: take all of it, as it was given out")
	}
	held, ok := t.bySum[sha256.Sum256([]byte(token))]
	if !ok {
		return Identity{Method: ByToken}, ErrWrongCredentials
	}
	who := Identity{User: held.user, Method: ByToken, Credential: held.hash.ID()}
	if until := held.hash.NotAfter; !until.IsZero() && !t.now().Before(until) {
		return who, rejected("the token expired on %s: ask whoever runs this proxy for a new one", until.Format(time.RFC3339))
	}
	return who, nil
}
