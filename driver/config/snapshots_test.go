package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSnapshotConfigIsParsed(t *testing.T) {
	parse := func(rest string) (*Config, error) {
		return Parse([]byte(`{"nodes": [{"name": "a", "rpcURL": "https://a", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"}]` + rest + `}`))
	}
	for rest, detach := range map[string]bool{
		"": false, `, "snapshots": {}`: false, `, "snapshots": {"deleteWithClones": "refuse"}`: false, `, "snapshots": {"deleteWithClones": "detach"}`: true,
	} {
		c, err := parse(rest)
		require.NoError(t, err, rest)
		assert.Equal(t, detach, c.Snapshots.DetachClones(), rest)
	}
	_, err := parse(`, "snapshots": {"deleteWithClones": "copy"}`)
	assert.ErrorContains(t, err, "refuse or detach")
	_, err = parse(`, "snapshots": {"deletewithclone": "detach"}`)
	require.Error(t, err)
}
