package persist

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// Only calls that remove an identifiable object are recorded as removals, and only up to the limit.
// Otherwise, objects that are merely missing after a restart would count as removed.
func TestOnlyIdentifiableRemovalsAreRecorded(t *testing.T) {
	remove, create := &rpcschema.Method{Removes: true}, &rpcschema.Method{}
	undo := &rpcschema.Method{Removes: true, Undoes: "create"}
	names := []rpcschema.Name{{Kind: "bdev", Value: "d"}}
	for name, c := range map[string]struct {
		method  *rpcschema.Method
		names   []rpcschema.Name
		others  []string
		earlier int
		want    int
	}{
		"an unknown method":              {nil, names, nil, 0, 0},
		"a creation":                     {create, names, nil, 0, 0},
		"a removal of nothing":           {remove, nil, nil, 0, 0},
		"a removal by name":              {remove, names, nil, 0, 1},
		"a removal by another name":      {remove, nil, []string{"u"}, 0, 1},
		"a removal by a number":          {undo, nil, nil, 0, 1},
		"a removal just below the limit": {remove, names, nil, maxTouched - 1, maxTouched},
		"a removal at the limit":         {remove, names, nil, maxTouched, maxTouched},
	} {
		seen := newChanges()
		seen.removals = make([]removal, c.earlier)
		seen.note(c.method, c.names, nil, c.others)
		assert.Len(t, seen.removals, c.want, name)
	}
}
