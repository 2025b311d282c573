package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A refusal states what is allowed, or whom to ask if nothing is.
func TestRefusalsStateWhatIsAllowed(t *testing.T) {
	s := &Scope{Tenant: Tenant{
		NQNPrefixes: []string{"nqn.2024-01.com.example:"}, VolumeNQN: "nqn.2020-04.io.spdk.csi:uuid:", IQNPrefixes: []string{"iqn.2024-01.com.example:"},
		KeyPrefixes: []string{"red-"}, Addresses: []string{"192.0.2.11:4420"}, Hosts: []string{"nqn.2014-08.org.nvmexpress:uuid:*"},
	}}
	for kind, want := range map[string]string{
		"nqn":      ": its NQNs begin with nqn.2024-01.com.example:, nqn.2020-04.io.spdk.csi:uuid:UUID-OF-A-VOLUME",
		"iqn":      ": its IQNs begin with iqn.2024-01.com.example:",
		"key":      ": its names of keys begin with red-",
		"address":  ": its addresses are 192.0.2.11:4420",
		"host-nqn": ": its hosts are nqn.2014-08.org.nvmexpress:uuid:*",
		"bdev":     "",
	} {
		assert.Equal(t, want, s.allowed(kind), kind)
	}
	assert.Equal(t, []string{"nqn.2024-01.com.example:"}, s.NQNPrefixes)
	assert.Equal(t, ". The tenant has none: ask the administrator of this proxy for `hosts` under tenants", (&Scope{}).allowed("host-nqn"))
}
