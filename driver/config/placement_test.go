package config

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/placement"
	"github.com/spdkgate/spdkgate/driver/volume"
)

func configWith(nodeA, nodeB, rest string) string {
	node := `{"name": %q, "rpcURL": "https://s:1/", "targetType": "nvme-tcp", "targetAddr": "192.0.2.1"%s}`
	return `{"nodes": [` + fmt.Sprintf(node, "a", nodeA) + "," + fmt.Sprintf(node, "b", nodeB) + "]" + rest + "}"
}

func TestPlacementConfigIsParsed(t *testing.T) {
	c, err := Parse([]byte(configWith("", "", "")))
	require.NoError(t, err)
	assert.Equal(t, placement.Choice{Candidates: 2, Margin: 1}, c.Placement.Choice())
	assert.Equal(t, volume.Space{Overcommit: 1, Reserve: 0.05}, c.Placement.Space())
	assert.Equal(t, 10*time.Second, c.Placement.Timeout())
	c, err = Parse([]byte(configWith(`, "topology": {"zone": "x"}, "labels": {"disk": "nvme"}`, `, "topology": {"zone": "y"}`,
		`, "placement": {"candidates": 1, "margin": 0, "thinOvercommit": 2.5, "reservePercent": 0, "targetTimeout": "300ms"}`)))
	require.NoError(t, err)
	assert.Equal(t, placement.Choice{Candidates: 1}, c.Placement.Choice())
	assert.Equal(t, volume.Space{Overcommit: 2.5}, c.Placement.Space())
	assert.Equal(t, 300*time.Millisecond, c.Placement.Timeout())
	assert.Equal(t, []placement.Target{{Name: "a", Topology: map[string]string{"zone": "x"}, Labels: map[string]string{"disk": "nvme"}}, {Name: "b", Topology: map[string]string{"zone": "y"}}}, c.PlacementTargets())
}

func TestInvalidPlacementConfigIsRejected(t *testing.T) {
	for name, c := range map[string]struct{ a, b, rest, want string }{
		"candidates":        {rest: `, "placement": {"candidates": -1}`, want: "candidates is -1"},
		"margin":            {rest: `, "placement": {"margin": -1}`, want: "margin is -1"},
		"overcommit":        {rest: `, "placement": {"thinOvercommit": -2}`, want: "thinOvercommit is -2"},
		"reserve":           {rest: `, "placement": {"reservePercent": 100}`, want: "reservePercent is 100"},
		"timeout":           {rest: `, "placement": {"targetTimeout": "10"}`, want: `targetTimeout is "10"`},
		"long timeout":      {rest: `, "placement": {"targetTimeout": "1h"}`, want: "targetTimeout"},
		"unknown":           {rest: `, "placement": {"strategy": "x"}`, want: "strategy"},
		"only one has":      {a: `, "topology": {"zone": "x"}`, want: "nodes[1] (b): topology"},
		"other keys":        {a: `, "topology": {"zone": "x"}`, b: `, "topology": {"rack": "x"}`, want: "the same keys"},
		"not a label":       {a: `, "topology": {"zone": "x y"}`, b: `, "topology": {"zone": "x"}`, want: "nodes[0] (a): topology"},
		"empty label value": {a: `, "labels": {"disk": ""}`, want: "nodes[0] (a): labels"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(configWith(c.a, c.b, c.rest)))
			require.ErrorContains(t, err, c.want)
		})
	}
}
