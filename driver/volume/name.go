package volume

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// SPDK stores only two facts about a logical volume: its name (at most 63 bytes, unique in its
// lvstore) and its parent. The driver therefore stores all persistent information in names:
//
//   - A volume has the requested name, as with SPDK's spdk-csi, so the driver finds that program's
//     volumes. SPDK refuses a second volume with that name, so two calls cannot create a volume
//     twice. After the volume has been used, its name may end in ".used" (see used.go).
//   - A snapshot's name contains a hash of the requested name, the UUID of its source, and the
//     second it was taken in: "snap.<hash>.<source>.<time>". SPDK sets the name in the same atomic
//     step that creates the snapshot, so the name is the same after any crash or retry. The cost is
//     that finding a snapshot by its requested name requires listing an lvstore (about 5 ms for
//     1,000 volumes, once for each snapshot taken). Because of the time, SPDK does not refuse a
//     second snapshot with the same requested name (see duplicates.go); it only refuses a second
//     operation on the source while one is running.
//   - A member of a group snapshot is named "snap.<short hash of the group's
//     name>.<source>.<time><random><size>". The last part is the same in all members of one
//     attempt, and contains their number (see group.go).
//   - Cloning a volume creates an internal snapshot, the base. The name of a base is "base.<hash of
//     the clone's name>.<source>". The driver does not list a base, and deletes it as soon as it
//     has only one clone (see bases.go).
//   - A replica of a replicated volume is named "replica.<UUID of the volume>.<number>" (see
//     replica.go).
const (
	nameMax    = 63
	snapPrefix = "snap."
	basePrefix = "base."
	hashLen    = 16
	shortHash  = 12 // length for groups
)

var (
	plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	notPlain  = regexp.MustCompile(`[^A-Za-z0-9._-]`)
	ownMember = regexp.MustCompile(`^snap\.([a-z2-7]{12})\.([0-9a-f]{32})\.([0-9a-f]{8}[0a-z2-7][a-z2-7]{3})$`)
	ownName   = regexp.MustCompile(`^(?:snap\.([a-z2-7]{16})\.([0-9a-f]{32})\.([0-9a-f]{8})|base\.[a-z2-7]{16}\.([0-9a-f]{32}))$`)
)

// LvolName returns the name of the lvol for a requested volume name.
func LvolName(name string) string {
	if len(name) <= nameMax && plainName.MatchString(name) && !reservedName(name) {
		return name
	}
	plain := notPlain.ReplaceAllString(name, "-")
	sum := sha256.Sum256([]byte(name))
	return "v" + plain[:min(len(plain), nameMax-34)] + "-" + hex.EncodeToString(sum[:16])
}

// reservedName reports whether a requested name must not be used for an lvol, because such lvol
// names have a special meaning.
func reservedName(name string) bool {
	return strings.HasPrefix(name, snapPrefix) || strings.HasPrefix(name, basePrefix) || strings.HasSuffix(name, usedSuffix) || isReplica(name)
}

func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:hashLen*5/8]))
}

func snapshotName(name, source string, at time.Time) string {
	return fmt.Sprintf("%s%s.%s.%08x", snapPrefix, hash(name), strings.ReplaceAll(source, "-", ""), uint32(at.Unix()))
}

func baseName(clone, source string) string {
	return basePrefix + hash(clone) + "." + strings.ReplaceAll(source, "-", "")
}

// helperName returns the name of a clone that exists only while the clone called name is being
// created.
func helperName(name string) string { return "helper." + hash(name) }

// A lvolName contains the parts of the name of a snapshot.
type lvolName struct {
	hash      string  // hash of the requested name; empty for a base and for a member of a group
	group     GroupID // empty unless the snapshot is a member of a group
	source    string  // UUID of the snapshot's source volume
	base      bool    // true for an internal snapshot, which cloning created
	createdAt time.Time
}

// parseName parses the name of a snapshot. It returns false if this package does not create
// snapshots with such names.
func parseName(s string) (lvolName, bool) {
	if m := ownMember.FindStringSubmatch(s); m != nil {
		g := GroupID{Hash: m[1], Attempt: m[3]}
		return lvolName{group: g, source: dashed(m[2]), createdAt: g.createdAt()}, true
	}
	m := ownName.FindStringSubmatch(s)
	switch {
	case m == nil:
		return lvolName{}, false
	case m[4] != "":
		return lvolName{source: dashed(m[4]), base: true}, true
	}
	return lvolName{hash: m[1], source: dashed(m[2]), createdAt: secondsOf(m[3])}, true
}

// secondsOf parses the time in a snapshot's name: eight hexadecimal digits.
func secondsOf(hex8 string) time.Time {
	seconds, _ := strconv.ParseUint(hex8, 16, 32)
	return time.Unix(int64(seconds), 0).UTC()
}

// isSnapshot reports whether an lvol is a snapshot. SPDK reports an lvol as a snapshot only if the
// lvol has had clones since SPDK started: after a restart, it reports a snapshot of a deleted
// volume as a volume. Names assigned by this package are reliable.
func isSnapshot(name string, reported bool) bool {
	_, ours := parseName(name)
	return reported || ours
}

func dashed(hex32 string) string {
	id, err := uuid.Parse(hex32)
	if err != nil {
		return ""
	}
	return id.String()
}
