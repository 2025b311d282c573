package volume

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
)

// A GroupID identifies a group snapshot.
type GroupID struct {
	Hash string // hash of the group's requested name
	// Attempt consists of the time of the attempt, three random characters (the first is 0 if the
	// volumes are on several targets), and a character for the number of members.
	Attempt string
}

const base32Digits = "abcdefghijklmnopqrstuvwxyz234567"

var groupID = regexp.MustCompile(`^group\.([a-z2-7]{12})\.([0-9a-f]{8}[0a-z2-7][a-z2-7]{3})$`)

// GroupHash returns the hash that identifies a requested name in group ids.
func GroupHash(name string) string { return hash(name)[:shortHash] }

// ParseGroupID parses the result of String.
func ParseGroupID(s string) (id GroupID, ok bool) {
	m := groupID.FindStringSubmatch(s)
	if m == nil {
		return GroupID{}, false
	}
	return GroupID{Hash: m[1], Attempt: m[2]}, true
}

func newGroupID(name string, at time.Time, size, targets int) GroupID {
	attempt := fmt.Appendf(nil, "%08x", uint32(at.Unix()))
	for range 3 {
		attempt = append(attempt, base32Digits[rand.IntN(len(base32Digits))])
	}
	if targets > 1 {
		attempt[8] = '0'
	}
	return GroupID{Hash: GroupHash(name), Attempt: string(append(attempt, base32Digits[size-1]))}
}

func (g GroupID) String() string { return "group." + g.Hash + "." + g.Attempt }

// Size returns the number of members.
func (g GroupID) Size() int {
	return strings.IndexByte(base32Digits, g.Attempt[len(g.Attempt)-1]) + 1
}

// Several reports whether the members are on several targets.
func (g GroupID) Several() bool { return g.Attempt[8] == '0' }

func (g GroupID) createdAt() time.Time { return secondsOf(g.Attempt[:8]) }

// snapshotOf returns the name of the group's snapshot of a volume.
func (g GroupID) snapshotOf(source string) string {
	return snapPrefix + g.Hash + "." + strings.ReplaceAll(source, "-", "") + "." + g.Attempt
}
