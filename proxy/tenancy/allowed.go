package tenancy

import (
	"fmt"
	"strings"
)

// allowed states which values of a kind of object, of hosts or of addresses the tenant may use. It
// reveals only the tenant's own configuration.
func (s *Scope) allowed(kind string) string {
	var list []string
	var noun, key string
	switch kind {
	case "address":
		noun, key, list = "addresses are", "addresses", s.Addresses
	case "host-nqn":
		noun, key, list = "hosts are", "hosts", s.Hosts
	case "nqn":
		noun, key, list = "NQNs begin with", "nqn_prefixes", s.NQNPrefixes
		if s.VolumeNQN != "" {
			list = append(list[:len(list):len(list)], s.VolumeNQN+"UUID-OF-A-VOLUME")
		}
	case "iqn":
		noun, key, list = "IQNs begin with", "iqn_prefixes", s.IQNPrefixes
	case "key":
		noun, key, list = "names of keys begin with", "key_prefixes", s.KeyPrefixes
	default:
		return ""
	}
	if len(list) == 0 {
		return fmt.Sprintf(". The tenant has none: ask the administrator of this proxy for `%s` under tenants", key)
	}
	return fmt.Sprintf(": its %s %s", noun, strings.Join(list, ", "))
}
