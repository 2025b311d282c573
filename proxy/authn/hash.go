package authn

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// A Hash is a password hash.
type Hash interface {
	// ID returns a string that identifies the password in logs. It is the beginning of the hash's
	// salt, which does not help in guessing the password.
	ID() string
	// matches reports whether the hash belongs to this password.
	matches(password string) bool
	// kind returns the algorithm and its parameters, which determine how long matches takes.
	kind() string
	// decoy returns a hash of the same kind that matches no password.
	decoy() Hash
}

// idLength is the length of an ID in characters. These characters encode 48 bits of a salt of at
// least 64 bits, so two passwords of a user almost never have the same ID.
const idLength = 8

// ParseHash parses a bcrypt hash ($2a$, $2b$, $2y$) or an argon2id hash in PHC format
// ($argon2id$v=19$m=…,t=…,p=…$salt$hash). The error never contains the text.
func ParseHash(text string) (Hash, error) {
	if m := bcryptText.FindStringSubmatch(text); m != nil {
		cost, _ := strconv.Atoi(m[1])
		if cost < bcrypt.MinCost || cost > maxBcryptCost {
			return nil, fmt.Errorf("bcrypt cost %d is not within %d to %d", cost, bcrypt.MinCost, maxBcryptCost)
		}
		return bcryptHash{text: text, rounds: cost}, nil
	}
	if m := argon2Text.FindStringSubmatch(text); m != nil {
		return parseArgon2(m)
	}
	return nil, errors.New("neither a bcrypt nor an argon2id hash: `spdk-proxy hash-password` creates one")
}

// ParseHashes parses a file with one hash per line. Empty lines and comments after a # are ignored.
func ParseHashes(text string) (hashes []Hash, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		h, wrong := ParseHash(line)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("line %d: %w", number, wrong))
			continue
		}
		hashes = append(hashes, h)
	}
	return hashes, err
}

const (
	// maxBcryptCost is the highest accepted cost. A hash with this cost already takes seconds. With
	// a higher cost, clients would give up before they received a response.
	maxBcryptCost = 16
	// maxBcryptPassword is the maximum length of a password in bytes. bcrypt ignores all bytes
	// beyond it.
	maxBcryptPassword = 72
	bcryptCost        = 11
)

var bcryptText = regexp.MustCompile(`^\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}$`)

type bcryptHash struct {
	text   string
	rounds int
}

func (h bcryptHash) matches(password string) bool {
	if len(password) > maxBcryptPassword {
		return false
	}
	return bcrypt.CompareHashAndPassword([]byte(h.text), []byte(password)) == nil
}

// ID returns the text after the prefix, such as $2b$11$.
func (h bcryptHash) ID() string { return h.text[7 : 7+idLength] }

func (h bcryptHash) kind() string { return fmt.Sprintf("bcrypt %d", h.rounds) }

func (h bcryptHash) decoy() Hash {
	text, err := bcrypt.GenerateFromPassword([]byte(rand.Text()), h.rounds)
	if err != nil {
		panic(err) // the cost was checked when h was parsed
	}
	return bcryptHash{text: string(text), rounds: h.rounds}
}

// These are the argon2id parameters that HashPassword uses, and the maximum values that are
// accepted. HashPassword uses OWASP's second recommendation, because more memory would increase the
// resident size of an idle proxy.
const (
	argon2MemoryKiB  = 19 << 10
	argon2Passes     = 2
	argon2Threads    = 1
	argon2Salt       = 16
	argon2Sum        = 32
	maxArgon2Memory  = 256 << 10 // in KiB
	maxArgon2Passes  = 32
	maxArgon2Threads = 64
)

var argon2Text = regexp.MustCompile(`^\$argon2id\$v=19\$m=(\d{1,10}),t=(\d{1,10}),p=(\d{1,3})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})$`)

type argon2Hash struct {
	memoryKiB, passes uint32
	threads           uint8
	salt, sum         []byte
}

func parseArgon2(m []string) (Hash, error) {
	number := func(name, text string, low, high uint64) (uint64, error) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("argon2id parameter %s must be %d to %d", name, low, high)
		}
		return n, nil
	}
	memory, err1 := number("m", m[1], 8, maxArgon2Memory)
	passes, err2 := number("t", m[2], 1, maxArgon2Passes)
	threads, err3 := number("p", m[3], 1, maxArgon2Threads)
	salt, err4 := base64.RawStdEncoding.DecodeString(m[4])
	sum, err5 := base64.RawStdEncoding.DecodeString(m[5])
	if err4 != nil || err5 != nil {
		err4 = errors.New("the salt or the sum of the argon2id hash is not base64")
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return argon2Hash{memoryKiB: uint32(memory), passes: uint32(passes), threads: uint8(threads), salt: salt, sum: sum}, nil
}

func (h argon2Hash) matches(password string) bool {
	sum := argon2.IDKey([]byte(password), h.salt, h.passes, h.memoryKiB, h.threads, uint32(len(h.sum)))
	return subtle.ConstantTimeCompare(sum, h.sum) == 1
}

func (h argon2Hash) ID() string { return base64.RawStdEncoding.EncodeToString(h.salt)[:idLength] }

func (h argon2Hash) kind() string {
	return fmt.Sprintf("argon2id m=%d,t=%d,p=%d", h.memoryKiB, h.passes, h.threads)
}

func (h argon2Hash) decoy() Hash {
	h.salt, h.sum = random(len(h.salt)), random(len(h.sum))
	return h
}

func (h argon2Hash) String() string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memoryKiB, h.passes, h.threads, b64(h.salt), b64(h.sum))
}

// HashPassword hashes a password with argon2id, in PHC format.
func HashPassword(password string) (string, error) {
	if password == "" {
		return "", errors.New("the password is empty")
	}
	h := argon2Hash{memoryKiB: argon2MemoryKiB, passes: argon2Passes, threads: argon2Threads, salt: random(argon2Salt)}
	h.sum = argon2.IDKey([]byte(password), h.salt, h.passes, h.memoryKiB, h.threads, argon2Sum)
	return h.String(), nil
}

// HashPasswordBcrypt hashes a password with bcrypt, for tools that do not support argon2id.
func HashPasswordBcrypt(password string) (string, error) {
	if password == "" {
		return "", errors.New("the password is empty")
	}
	if len(password) > maxBcryptPassword {
		return "", fmt.Errorf("bcrypt reads only the first %d bytes of a password: choose a shorter one, or argon2id", maxBcryptPassword)
	}
	text, err := bcrypt.GenerateFromPassword([]byte(password), bcryptCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	return string(text), nil
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
