package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

func TestConfigurationValuesOutOfBoundsAreRejected(t *testing.T) {
	addresses := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"targetAddr": "192.0.2.%d"}`, i))
		}
		return `"addresses": [` + strings.Join(list, ",") + `]`
	}
	for rest, ok := range map[string]bool{
		`"targetAddr": "192.0.2.1", "targetPort": "1"`:         true,
		`"targetAddr": "192.0.2.1", "targetPort": "65535"`:     true,
		`"targetAddr": "192.0.2.1", "targetPort": "65536"`:     false,
		`"targetAddr": "192.0.2.1", "listenPort": "65536"`:     false,
		`"targetAddr": "192.0.2.1", "listenPort": "a"`:         false,
		`"targetAddr": "192.0.2.1", "ca": ""`:                  true,
		`"targetAddr": "192.0.2.1", "ca": "x"`:                 true,
		`"targetAddr": "192.0.2.1", "caFile": "/x"`:            true,
		`"targetAddr": "192.0.2.1", "ca": "x", "caFile": "/x"`: false,
		addresses(1): true, addresses(16): true, addresses(17): false,
	} {
		_, err := parseAddresses(rest)
		assert.Equal(t, ok, err == nil, "%s: %v", rest, err)
	}
	for rest, ok := range map[string]bool{
		`"thinOvercommit": 0.01`: true, `"thinOvercommit": 1000`: true, `"thinOvercommit": 1000.5`: false, `"thinOvercommit": -0.01`: false,
		`"reservePercent": 0`: true, `"reservePercent": 99.9`: true, `"reservePercent": -0.1`: false,
		`"targetTimeout": "1ms"`: true, `"targetTimeout": "999us"`: false, `"targetTimeout": "1m"`: true, `"targetTimeout": "60001ms"`: false, `"targetTimeout": "x"`: false,
		`"candidates": 1`: true, `"margin": 0`: true,
	} {
		_, err := Parse([]byte(configWith("", "", `, "placement": {`+rest+`}`)))
		assert.Equal(t, ok, err == nil, "%s: %v", rest, err)
	}
	for text, ok := range map[string]bool{"5m": true, "299s": false, "0": true, "-5m": false, "x": false} {
		d, err := Check{Interval: text}.parse()
		assert.Equal(t, ok, err == nil, text)
		if err != nil {
			assert.Zero(t, d, "no check runs with an interval that is wrong")
		}
	}
	for topology, want := range map[string]bool{"": false, `, "topology": {"zone": "x"}`: true, `, "topology": {"zone": "x", "rack": "y"}`: true} {
		c, err := Parse([]byte(configWith(topology, topology, "")))
		require.NoError(t, err)
		assert.Equal(t, want, c.HasTopology(), topology)
		c, err = Parse(fmt.Appendf(nil, `{"nodes": [{"name": "a", "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"%s}]}`, topology))
		require.NoError(t, err)
		assert.Equal(t, want, c.HasTopology(), topology)
	}
}

func TestAddressesHaveDefaults(t *testing.T) {
	n, err := parseAddresses(`"addresses": [{"targetAddr": "192.0.2.1"}]`)
	require.NoError(t, err)
	assert.Equal(t, []Address{{TargetAddr: "192.0.2.1", TargetPort: "4420", ListenAddr: "192.0.2.1", ListenPort: "4420"}}, n.Addresses)
	assert.Empty(t, n.TargetAddr+n.TargetPort+n.ListenAddr+n.ListenPort)
}

func TestCredentialsComeFromTheCallOrTheFile(t *testing.T) {
	own := filepath.Join(t.TempDir(), "secret.json")
	for name, c := range map[string]struct {
		secrets     map[string]string
		file, class string
		kind        error
		says        string
	}{
		"other keys":                  {map[string]string{"password": "hunter2"}, "", "", request.ErrCredentials, "no key secret.json"},
		"a host's keys beside others": {map[string]string{hostauth.SecretCHAPUser: "u", "password": "hunter2"}, own, "", request.ErrCredentials, "no key secret.json"},
		"file missing":                {nil, own, "", request.ErrNoCredentials, own},
		"no secret":                   {nil, "", "", request.ErrNoCredentials, "mount a secret"},
		"no secret of a class":        {nil, "", "csi.storage.k8s.io/provisioner-secret", request.ErrNoCredentials, "set csi.storage.k8s.io/provisioner-secret-name and"},
	} {
		_, err := Credentials(c.secrets, c.file, c.class)
		require.ErrorIs(t, err, c.kind, name)
		require.ErrorContains(t, err, c.says, name)
		assert.NotContains(t, err.Error(), "hunter2")
		assert.Equal(t, c.class != "", strings.Contains(err.Error(), "in the class"), name)
	}
	tokens, err := Credentials(map[string]string{SecretKey: `{"RPCTOKENS": [{"Name": "a", "Token": "t"}]}`}, "", "")
	require.NoError(t, err, "SPDK's spdk-csi accepts any case")
	assert.Equal(t, "t", tokens["a"].Token)
}
