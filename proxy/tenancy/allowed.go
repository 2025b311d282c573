package tenancy

import (
	"fmt"
	"strings"
)

// allowed returns the last part of a refusal, which lists the tenant's permitted values of this
// kind. It reveals only the tenant's own configuration.
func (s *Scope) allowed(kind string) string {
	var list []string
	var noun, key string
	switch kind {
	case "address":
		noun, key, list = "its addresses are", "addresses", s.Addresses
	case "host-nqn":
		noun, key, list = "its hosts are", "hosts", s.Hosts
	case "nqn":
		noun, key, list = "its NQNs begin with", "nqn_prefixes", s.NQNPrefixes
		if s.VolumeNQN != "" {
			list = append(list[:len(list):len(list)], s.VolumeNQN+"UUID-OF-A-VOLUME")
		}
	case "lvstore":
		noun, key, list = "its lvstores are", "lvstores", s.LVStores
	case "bdev":
		noun, key, list = "its bdevs match", "bdevs", s.Bdevs
	case "key":
		noun, key, list = "names of its keys begin with", "key_prefixes", s.KeyPrefixes
	default:
		return ""
	}
	if len(list) == 0 {
		return fmt.Sprintf(". The tenant has no `%s`: ask the administrator of this proxy to configure some under tenants", key)
	}
	return fmt.Sprintf(": %s %s", noun, strings.Join(list, ", "))
}
