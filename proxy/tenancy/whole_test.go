package tenancy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema"
)

// A tenant's call that neither names nor lists objects concerns the whole target, and is refused.
func TestTenantCallsOnTheWholeTargetAreRefused(t *testing.T) {
	w := newWorld(t, "v26.05")
	w.settle()
	tried := 0
	w.sent = nil
	for _, m := range rpcschema.Default().Methods() {
		p := w.tenancy.plans.Of(m.Name)
		if !m.Has(w.release) || p.Refusal != "" || p.Open || p.Lists {
			continue
		}
		if err := rpcschema.Default().ValidateParams(m.Name, nil, w.release); err != nil {
			continue // the call must name an object
		}
		tried++
		_, err := w.call("alice", m.Name, nil)
		var refused *Refusal
		require.ErrorAs(t, err, &refused, m.Name)
		assert.Contains(t, refused.Reason, "affects the whole target")
	}
	assert.Positive(t, tried)
	assert.Empty(t, w.sent, "SPDK received no query")
}

// A UUID may be an alias of an existing bdev, so a tenant must not name a new bdev with a UUID, not
// even with the UUID of its own volume.
func TestNewBdevsAreNotNamedByUUID(t *testing.T) {
	w := newWorld(t, "v26.05")
	red, _ := w.settle()
	for _, name := range []string{red.volume, red.mallocUUID} {
		_, err := w.call("alice", "bdev_malloc_create", p{"name": name, "num_blocks": 64, "block_size": 512})
		var refused *Refusal
		require.ErrorAs(t, err, &refused)
		assert.Contains(t, refused.Reason, "not a name that this tenant may choose")
	}
}

// If two bdevs have the same UUID, the UUID belongs to a tenant only if both bdevs do.
func TestSharedUUIDBelongsToTheOwnerOfBothBdevs(t *testing.T) {
	for _, c := range []struct{ first, second, want bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		v := &ownershipCheck{}
		v.note("u", c.first)
		v.note("u", c.second)
		assert.Equal(t, c.want, v.bdevs["u"], c)
	}
}
