package quiesce

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A claim that allows reads and prevents all writes is harmless.
func TestOnlyClaimsThatAllowWritesCount(t *testing.T) {
	for _, c := range []struct {
		claimed bool
		kind    *spdkrpc.BdevInfoClaimType
		want    bool
	}{
		{false, nil, false}, {true, nil, true}, {true, new(spdkrpc.BdevInfoClaimType("exclusive_write")), true}, {true, new(spdkrpc.BdevInfoClaimType("read_many_write_one")), true},
		{true, new(spdkrpc.BdevInfoClaimType("read_many_write_shared")), true}, {true, new(spdkrpc.BdevInfoClaimType("read_many_write_none")), false}, {false, new(spdkrpc.BdevInfoClaimType("exclusive_write")), false},
	} {
		assert.Equal(t, c.want, isWritten(spdkrpc.BdevInfo{Claimed: c.claimed, ClaimType: c.kind}), "%+v", c)
	}
}
