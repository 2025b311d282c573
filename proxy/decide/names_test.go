package decide

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// According to the schema, every parameter that names a new object is checked.
func TestEveryNewNameIsChecked(t *testing.T) {
	found := map[string]bool{}
	schema := rpcschema.Default()
	for _, m := range schema.Methods() {
		for _, p := range m.Params {
			if p.Schema != nil && (strings.HasPrefix(p.Schema.Resource, "new-") || p.Schema.Resource == "lvol-name") {
				found[p.Schema.Resource] = true
				require.Error(t, checkNewNames(schema, m.Name, map[string]any{p.Name: "a\u009b"}), "%s %s", m.Name, p.Name)
				require.NoError(t, checkNewNames(schema, m.Name, map[string]any{p.Name: "größe-1"}), "%s %s", m.Name, p.Name)
			}
		}
	}
	assert.Len(t, found, 6, "%v", found)
}
