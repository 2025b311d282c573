package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// The space of a tenant's deleted volume is zeroed whatever the client's parameters are, unless the
// configuration allows other methods.
func TestTenantSpaceIsZeroed(t *testing.T) {
	for _, release := range []string{"v24.01", "v26.05"} {
		w := newWorld(t, release)
		w.settle()
		for i, asked := range []any{nil, "none", "unmap", "write_zeroes"} {
			params := p{"lvs_name": "lvs-red", "lvol_name": "new" + string(rune('a'+i)), "size_in_mib": 4}
			if asked != nil {
				params["clear_method"] = asked
			}
			w.must("alice", "bdev_lvol_create", params)
			got := w.sent[len(w.sent)-1]
			assert.Equal(t, "bdev_lvol_create", got.method)
			assert.Equal(t, "write_zeroes", got.params["clear_method"], asked)
			assert.Equal(t, asked, params["clear_method"], "the client's own parameters are unchanged")
		}
	}

	w := newWorld(t, "v26.05", func(red *Tenant) { red.Allow = []string{"deleted-data"} })
	w.settle()
	w.must("alice", "bdev_lvol_create", p{"lvs_name": "lvs-red", "lvol_name": "new", "size_in_mib": 4, "clear_method": "none"})
	assert.Equal(t, "none", w.sent[len(w.sent)-1].params["clear_method"])
	w.must("alice", "bdev_lvol_create", p{"lvs_name": "lvs-red", "lvol_name": "new2", "size_in_mib": 4})
	assert.NotContains(t, w.sent[len(w.sent)-1].params, "clear_method")
}

func TestTenantLvstoresAreZeroed(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.settle()
	w.must("", "bdev_malloc_create", p{"name": "red-disk", "num_blocks": 16384, "block_size": 4096})
	w.must("alice", "bdev_lvol_create_lvstore", p{"bdev_name": "red-disk", "lvs_name": "lvs-red2", "clear_method": "none"})
	assert.Equal(t, "write_zeroes", w.sent[len(w.sent)-1].params["clear_method"])
}

// Every parameter that selects how space is cleared must be annotated, even if a later release adds
// it.
func TestClearMethodsAreAnnotated(t *testing.T) {
	found := 0
	for _, m := range rpcschema.Default().Methods() {
		for _, param := range m.Params {
			if param.Name == "clear_method" {
				found++
				require.NotNil(t, param.Schema.Opens, m.Name)
				for _, value := range rpcschema.Default().Resolve(param.Schema).Enum {
					assert.Equal(t, value != "write_zeroes", param.Schema.Opens.By(value), "%s %v", m.Name, value)
				}
			}
		}
	}
	assert.Equal(t, 2, found)
}
