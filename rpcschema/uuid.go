package rpcschema

import (
	"strings"

	"github.com/google/uuid"
)

// LooksLikeUUID reports whether a name may be a UUID, in any spelling.
func LooksLikeUUID(name string) bool {
	if len(name) < 32 || len(name) > 45 {
		return false
	}
	_, err := uuid.Parse(name)
	return err == nil
}

// CanonicalUUID returns SPDK's spelling of a UUID, or "" if id is not a UUID.
func CanonicalUUID(id string) string {
	if IsCanonicalUUID(id) {
		return id
	}
	if len(id) != 36 && len(id) != 32 || strings.ContainsAny(id, "{}") {
		return ""
	}
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	return parsed.String()
}

// IsCanonicalUUID reports whether a UUID is in SPDK's spelling.
func IsCanonicalUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
