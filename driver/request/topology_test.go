package request

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTopologyIsParsed(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":                              {},
		"topology.kubernetes.io/zone=a": {"topology.kubernetes.io/zone": "a"},
		" zone=a, rack=7 ,":             {"zone": "a", "rack": "7"},
		"zone=,rack=7":                  {"rack": "7"},
	} {
		got, err := ParseTopology(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"zone", "zone=a,zone=b", "zone=a,zone=", "a b=c", "zone=not valid", "=x", "a/b/c=d"} {
		_, err := ParseTopology(text)
		require.ErrorIs(t, err, ErrInvalid, text)
	}
	require.ErrorIs(t, CheckTopology(map[string]string{"zone": ""}), ErrInvalid)
}
