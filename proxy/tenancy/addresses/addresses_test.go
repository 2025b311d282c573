package addresses

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestListedAddressesMatch(t *testing.T) {
	var list []Address
	for _, text := range []string{"192.0.2.10", "192.0.2.11:4420", "[2001:db8::1]:4420"} {
		a, err := Parse(text)
		require.NoError(t, err)
		list = append(list, a)
	}
	for a, want := range map[Parts]bool{
		{"192.0.2.10", "1"}: true, {"192.0.2.10", "65535"}: true, {"::ffff:192.0.2.10", "4420"}: true, {"2001:db8:0::1", "4420"}: true,
		{"192.0.2.11", "4420"}: true, {"192.0.2.11", "4421"}: false, {"192.0.2.12", "4420"}: false, {"2001:db8::1", "4421"}: false,
		{"192.0.2.10", "0"}: false, {"192.0.2.10", "04420"}: false, {"192.0.2.10", ""}: false, {"192.0.2.010", "4420"}: false, {"", ""}: false,
	} {
		assert.Equal(t, want, a.In(list), a)
	}
	for _, text := range []string{"", "host", "192.0.2.10:0", "192.0.2.10:70000", "fe80::1%eth0", "[fe80::1%eth0]:4420"} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

// A member that contradicts an earlier member, or that could lead to another address, is rejected.
func TestContradictingAddressMembersAreRejected(t *testing.T) {
	var a Parts
	for _, m := range [][2]string{{"trtype", "tcp"}, {"adrfam", "IPv6"}, {"host", "[2001:db8::1]"}, {"port", "4420"}, {"trsvcid", "4420"}} {
		assert.True(t, a.Set(m[0], m[1]), m)
	}
	assert.Equal(t, Parts{"2001:db8::1", "4420"}, a)
	for _, m := range [][2]string{{"trtype", "VFIOUSER"}, {"traddr", "192.0.2.10"}, {"port", "1"}, {"secure", "x"}} {
		assert.False(t, a.Set(m[0], m[1]), m)
	}
}
