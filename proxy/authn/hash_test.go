package authn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

// cheapBcrypt returns a low-cost bcrypt hash, for tests in which the cost does not matter.
func cheapBcrypt(t *testing.T, password string) string {
	text, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return string(text)
}

func TestHashPasswordBcryptMatchesThePassword(t *testing.T) {
	text, err := HashPasswordBcrypt("secret")
	require.NoError(t, err)
	h, err := ParseHash(text)
	require.NoError(t, err)
	assert.True(t, h.matches("secret"))
}

func TestHashesMatchOnlyTheirPassword(t *testing.T) {
	ours, err := HashPassword("secret")
	require.NoError(t, err)
	bcryptOurs := cheapBcrypt(t, "secret")
	for name, text := range map[string]string{
		"argon2id, ours": ours,
		"bcrypt, ours":   bcryptOurs,
		"bcrypt, 2y":     strings.Replace(bcryptOurs, "$2a$", "$2y$", 1),
		"bcrypt, 2b":     strings.Replace(bcryptOurs, "$2a$", "$2b$", 1),
	} {
		t.Run(name, func(t *testing.T) {
			h, err := ParseHash(text)
			require.NoError(t, err)
			assert.True(t, h.matches("secret"))
			assert.False(t, h.matches("Secret"))
			assert.False(t, h.matches(""))
			d := h.decoy()
			assert.Equal(t, h.kind(), d.kind())
			assert.False(t, d.matches("secret"))
		})
	}
}

// A test vector of the reference implementation is accepted.
func TestArgon2idHashesOfOtherProgramsAreAccepted(t *testing.T) {
	h, err := ParseHash("$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc")
	require.NoError(t, err)
	assert.True(t, h.matches("password"))
	assert.False(t, h.matches("differentpassword"))
}

// These parameters are OWASP's second recommendation. More passes or memory would slow down each
// client's first call; fewer would help an attacker.
func TestHashPasswordUsesOWASPParameters(t *testing.T) {
	text, err := HashPassword("secret")
	require.NoError(t, err)
	assert.Regexp(t, `^\$argon2id\$v=19\$m=19456,t=2,p=1\$[^$]{22}\$[^$]{43}$`, text)
}

func TestHashPasswordUsesRandomSalts(t *testing.T) {
	a, err := HashPassword("secret")
	require.NoError(t, err)
	b, err := HashPassword("secret")
	require.NoError(t, err)
	assert.NotEqual(t, a, b)
}

func TestPasswordsTooLongForBcryptDoNotMatch(t *testing.T) {
	long := strings.Repeat("a", maxBcryptPassword)
	h, err := ParseHash(cheapBcrypt(t, long))
	require.NoError(t, err)
	assert.True(t, h.matches(long))
	assert.False(t, h.matches(long+"b"), "bcrypt would ignore the last byte")
	_, err = HashPasswordBcrypt(long + "b")
	require.ErrorContains(t, err, "argon2id")
}

func TestEmptyPasswordsAreRejected(t *testing.T) {
	_, err := HashPassword("")
	require.Error(t, err)
	_, err = HashPasswordBcrypt("")
	require.Error(t, err)
}

func TestBcryptCostsAreLimited(t *testing.T) {
	for _, cost := range []string{"04", "16"} {
		_, err := ParseHash("$2y$" + cost + "$" + strings.Repeat("a", 53))
		require.NoError(t, err, cost)
	}
}

func TestInvalidHashesAreRejected(t *testing.T) {
	salt, sum := "c29tZXNhbHQxMjM", "c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz"
	for text, says := range map[string]string{
		"":                                  "hash-password",
		"hunter2":                           "hash-password",
		"$1$md5$abc":                        "hash-password",
		"$2y$17$" + strings.Repeat("a", 53): "cost 17",
		"$2y$10$" + strings.Repeat("a", 52): "hash-password",
		"$argon2i$v=19$m=64,t=1,p=1$" + salt + "$" + sum:         "hash-password",
		"$argon2id$v=16$m=64,t=1,p=1$" + salt + "$" + sum:        "hash-password",
		"$argon2id$v=19$m=9999999,t=1,p=1$" + salt + "$" + sum:   "parameter m",
		"$argon2id$v=19$m=64,t=0,p=1$" + salt + "$" + sum:        "parameter t",
		"$argon2id$v=19$m=64,t=1,p=99$" + salt + "$" + sum:       "parameter p",
		"$argon2id$v=19$m=64,t=1,p=1$" + salt + "$":              "hash-password",
		"$argon2id$v=19$m=64,t=1,p=1$" + salt + "x$" + sum + "x": "base64",
	} {
		_, err := ParseHash(text)
		require.ErrorContains(t, err, says, text)
		if len(text) > 5 {
			assert.NotContains(t, err.Error(), text)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	argon2, _ := HashPassword("secret")
	blowfish, _ := HashPasswordBcrypt("secret")
	for name, text := range map[string]string{"argon2id": argon2, "bcrypt": blowfish} {
		h, err := ParseHash(text)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				h.matches("secret")
			}
		})
	}
}
