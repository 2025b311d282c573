package move

import (
	"context"
	"errors"
	"slices"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

var errUncounted = errors.New("the target does not report numbers of clusters (SPDK before v24.05)")

// changedSince returns, by chunk, which chunks must be copied again if the copy equals base, a
// snapshot of the original. It returns nil if these chunks are unknown.
func (a *allocations) changedSince(ctx context.Context, base string, from, to *device) []bool {
	changed, err := a.get(ctx, a.original.String(), base, from.size)
	if err == nil && !changed.Counted {
		err = errUncounted
	}
	if err != nil {
		a.m.warn("everything is copied again, because the changes since --prepare are unknown", "snapshot", base, "error", err)
		return nil
	}
	has := a.ofCopy(ctx, to.size)
	if has == nil {
		return nil
	}
	a.base, a.before = base, changed
	return affected(changed, has, from.size)
}

// affected returns, by chunk, whether a chunk of the original must be compared: it changed,
// contains the mark of an unfinished copy, or shares a cluster of the copy with such a chunk. A
// write to such a chunk may allocate the whole cluster, and a newly allocated cluster may contain
// data of a deleted volume.
func affected(changed, has *inventory.Allocation, size int64) []bool {
	only := make([]bool, (size+chunkBytes-1)/chunkBytes)
	for i := range only {
		only[i] = i == 0 || changed.Has(int64(i)*chunkBytes, chunkBytes)
	}
	for grown := true; grown; {
		grown = false
		for start := int64(0); start < size; start += has.ClusterSize {
			chunks := only[start/chunkBytes : (min(start+has.ClusterSize, size)-1)/chunkBytes+1]
			written := slices.Contains(chunks, true)
			for i, is := range chunks {
				grown = grown || written && !is
				chunks[i] = written
			}
		}
	}
	return only
}
