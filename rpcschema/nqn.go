package rpcschema

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// DiscoveryNQN is the NQN of the discovery subsystem, which lists all other subsystems.
const DiscoveryNQN = "nqn.2014-08.org.nvmexpress.discovery"

// UUIDPrefix is the prefix of NQNs that contain a UUID, which makes them unique without a domain
// name.
const UUIDPrefix = "nqn.2014-08.org.nvmexpress:uuid:"

// nqnPattern matches nqn.yyyy-mm.reverse.domain:name. A label of the domain has at most 64
// characters.
var nqnPattern = func() *regexp.Regexp {
	const label = `[A-Za-z](?:[A-Za-z0-9-]{0,62}[A-Za-z0-9])?`
	return regexp.MustCompile(`(?s)^nqn\.[0-9]{4}-[0-9]{2}\.` + label + `(?:\.` + label + `)*:.+$`)
}()

// ValidNQN reports whether SPDK accepts an NQN (nvmf_nqn_is_valid in lib/nvmf).
func ValidNQN(nqn string) bool {
	if len(nqn) > 223 || !utf8.ValidString(nqn) {
		return false
	}
	if id, ok := strings.CutPrefix(nqn, UUIDPrefix); ok {
		_, err := uuid.Parse(id)
		return err == nil && len(id) == 36
	}
	return nqn == DiscoveryNQN || nqnPattern.MatchString(nqn)
}
