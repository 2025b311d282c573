package identity

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// The schema describes every parameter in identifiedBy.
func TestIdentifyingParametersExist(t *testing.T) {
	for _, method := range slices.Sorted(maps.Keys(identifiedBy)) {
		m, known := rpcschema.Default().Method(method)
		require.True(t, known, method)
		for _, name := range identifiedBy[method] {
			exists := name == "namespace.nsid"
			for _, p := range m.Params {
				exists = exists || p.Name == name
			}
			assert.True(t, exists, "%s %s", method, name)
		}
	}
}
