package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
)

func parseAddresses(rest string) (Target, error) {
	c, err := Parse([]byte(`{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", ` + rest + `}]}`))
	if err != nil {
		return Target{}, err
	}
	return c.Nodes[0], nil
}

func TestAddressesAreParsed(t *testing.T) {
	n, err := parseAddresses(`"targetAddr": "[fd00::1]"`)
	require.NoError(t, err)
	assert.Equal(t, []Address{{TargetAddr: "fd00::1", TargetPort: "4420", ListenAddr: "fd00::1", ListenPort: "4420"}}, n.AllAddresses())

	n, err = parseAddresses(`"addresses": [{"targetAddr": "192.0.2.1", "topology": {"zone": "a"}},
		{"targetAddr": "storage.example", "targetPort": "9", "listenAddr": "[fd00::1]"}, {"targetAddr": "192.0.2.2", "listenAddr": "192.0.2.1"}]`)
	require.NoError(t, err)
	assert.Equal(t, []Address{
		{TargetAddr: "192.0.2.1", TargetPort: "4420", ListenAddr: "192.0.2.1", ListenPort: "4420", Topology: map[string]string{"zone": "a"}},
		{TargetAddr: "storage.example", TargetPort: "9", ListenAddr: "fd00::1", ListenPort: "9"},
		{TargetAddr: "192.0.2.2", TargetPort: "4420", ListenAddr: "192.0.2.1", ListenPort: "4420"},
	}, n.AllAddresses())
	assert.Equal(t, []export.Portal{{Addr: "192.0.2.1", Port: "4420"}, {Addr: "fd00::1", Port: "9"}}, n.Listen(), "two addresses lead to one listener")
}

func TestInvalidAddressesAreRejected(t *testing.T) {
	for rest, want := range map[string]string{
		`"targetAddr": "192.0.2.1", "addresses": [{"targetAddr": "192.0.2.2"}]`: "addresses is combined with",
		`"listenPort": "1", "addresses": [{"targetAddr": "192.0.2.2"}]`:         "addresses is combined with",
		`"addresses": []`: "targetAddr",
		`"addresses": [{"targetAddr": "192.0.2.1"}, {"listenAddr": "192.0.2.2"}]`:                               "addresses[1]: targetAddr",
		`"addresses": [{"targetAddr": "storage"}]`:                                                              "addresses[0]: listenAddr",
		`"addresses": [{"targetAddr": "192.0.2.1", "targetPort": "x"}]`:                                         "targetPort",
		`"addresses": [{"targetAddr": "192.0.2.1", "topology": {"zone": ""}}]`:                                  "is not a valid label",
		`"addresses": [{"targetAddr": "192.0.2.1", "zone": "a"}]`:                                               "zone",
		`"addresses": [{"targetAddr": "fd00::1"}, {"targetAddr": "[fd00::1]"}]`:                                 "twice",
		`"addresses": [{"targetAddr": "fe80::1%eth0"}]`:                                                         "listenAddr",
		`"addresses": [` + strings.Repeat(`{"targetAddr": "192.0.2.1"}, `, 16) + `{"targetAddr": "192.0.2.1"}]`: "SPDK allows 16",
	} {
		_, err := parseAddresses(rest)
		require.ErrorContains(t, err, want, rest)
	}
}
