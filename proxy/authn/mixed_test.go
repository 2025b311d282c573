package authn

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A countedHash counts the computations of hashes and decoys, by kind.
type countedHash struct {
	Hash
	work map[string]int
}

func (h countedHash) matches(password string) bool {
	h.work[h.kind()]++
	return h.Hash.matches(password)
}

func (h countedHash) decoy() Hash { return countedHash{h.Hash.decoy(), h.work} }

// Even if users have argon2id hashes and bcrypt hashes of different costs, a wrong password causes
// the same computations for every user and for unknown names.
func TestWrongPasswordsCostTheSameWithMixedAlgorithms(t *testing.T) {
	const sum = "$c29tZXNhbHQxMjM$c3Vtc3Vtc3Vtc3Vtc3Vtc3VtMTIz"
	texts := map[string][]string{
		"bcrypt": {"$2y$04$" + strings.Repeat("a", 53)},
		"slower": {"$2y$05$" + strings.Repeat("b", 53)},
		"argon":  {"$argon2id$v=19$m=64,t=1,p=1" + sum},
		"larger": {"$argon2id$v=19$m=128,t=1,p=1" + sum},
		"both":   {"$2y$04$" + strings.Repeat("c", 53), "$argon2id$v=19$m=64,t=2,p=1" + sum},
		"two":    {"$2y$04$" + strings.Repeat("d", 53), "$2y$04$" + strings.Repeat("e", 53)},
	}
	for _, members := range [][]string{{"bcrypt"}, {"argon"}, {"bcrypt", "argon"}, {"slower", "larger"}, {"bcrypt", "slower", "argon", "larger", "both", "two"}} {
		work := map[string]int{}
		users := []User{{Name: "token", Tokens: []TokenHash{HashToken("t", time.Time{})}}}
		for _, name := range members {
			u := User{Name: name}
			for _, text := range texts[name] {
				h, err := ParseHash(text)
				require.NoError(t, err)
				u.Hashes = append(u.Hashes, countedHash{h, work})
			}
			users = append(users, u)
		}
		a := newBasic(t, Options{FailuresPerMinute: 6000}, users...)
		var first map[string]int
		for _, name := range append([]string{"unknown", "token"}, members...) {
			clear(work)
			_, err := a.Authenticate(t.Context(), basic(name, "wrong"), here)
			require.ErrorIs(t, err, ErrWrongCredentials)
			if first == nil {
				first = maps.Clone(work)
				require.NotEmpty(t, first)
			}
			assert.Equal(t, first, work, "%s of %v", name, members)
		}
	}
}
