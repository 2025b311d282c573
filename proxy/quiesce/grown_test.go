package quiesce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// A snapshot of a grown volume is deleted only if the volume has its own extent page where the
// snapshot's last extent page is. Otherwise, SPDK would leave the volume with a page that describes
// the snapshot's size.
func TestSnapshotOfAGrownVolumeIsDeletedOnlyIfTheVolumeHasItsOwnExtentPage(t *testing.T) {
	const mib = 1 << 20
	errUnread := errors.New("no permission")
	for name, c := range map[string]struct {
		none      bool   // whether the snapshot has no extent page
		from, to  uint64 // size in MiB before and after growing; a cluster has 4 MiB, and an extent page 512 clusters
		has       bool
		unread    error
		unset     bool // whether the proxy cannot read metadata at all
		bytesFrom uint64
		bytesTo   uint64
		asked     bool // whether the metadata was read
		refused   bool
	}{
		"same size":                           {from: 8, to: 8},
		"nothing written":                     {from: 8, to: 16, none: true, asked: true},
		"nothing written, no reader":          {from: 8, to: 16, unset: true, refused: true, bytesTo: 16 * mib},
		"full extent pages":                   {from: 2048, to: 2056},
		"own extent page":                     {from: 8, to: 16, has: true, asked: true},
		"no own extent page":                  {from: 8, to: 16, asked: true, refused: true, bytesTo: 16 * mib},
		"unreadable":                          {from: 8, to: 16, unread: errUnread, asked: true, refused: true, bytesTo: 16 * mib},
		"no reader":                           {from: 8, to: 16, unset: true, refused: true, bytesTo: 16 * mib},
		"no own page among several":           {from: 8, to: 2056, asked: true, refused: true, bytesTo: 2048 * mib},
		"own page among several":              {from: 8, to: 2056, has: true, asked: true},
		"second extent page, none of its own": {from: 2056, to: 2064, asked: true, refused: true, bytesFrom: 2048 * mib, bytesTo: 2064 * mib},
	} {
		for _, mode := range []Mode{{Freeze: true}, {Idle: true}, {Unchecked: true}} {
			t.Run(name, func(t *testing.T) {
				b := newBench(t, "v26.05")
				asked, id := false, ""
				if !c.unset {
					b.q.opts.HasExtentPage = func(_ context.Context, _ *spdkrpc.Client, uuid string, number uint64) (bool, error) {
						asked = true
						assert.Equal(t, c.from/4/512, number)
						if uuid != id { // the snapshot
							assert.False(t, c.has)
							return !c.none, nil
						}
						return c.has, c.unread
					}
				}
				b.enlarge()
				var err error
				id, err = b.rpc.BdevLvolCreate(t.Context(), spdkrpc.BdevLvolCreateParams{LvolName: "v0", LvsName: new("lvs0"), SizeInMiB: c.from})
				require.NoError(t, err)
				b.snapshot("v0", "s0")
				b.resize(c.to)
				if mode.Freeze {
					b.export("v0", true)
				}
				_, err = b.delete("s0", mode)
				assert.Equal(t, c.asked, asked)
				assert.Equal(t, c.refused, b.exists("s0"))
				if !c.refused {
					require.NoError(t, err)
					return
				}
				var grown *GrownError
				require.ErrorAs(t, err, &grown)
				assert.Equal(t, GrownError{Snapshot: "lvs0/s0", Clone: "lvs0/v0", From: c.bytesFrom, To: c.bytesTo, Unread: c.unread}, *grown)
				assert.Equal(t, c.unread != nil, b.log.Count("no permission") > 0)
				assert.Zero(t, b.froze)

				// Once the clone has been deleted, the snapshot can be deleted.
				if mode.Freeze {
					require.NoError(t, b.rpc.NVMfDeleteSubsystem(t.Context(), spdkrpc.NVMfDeleteSubsystemParams{NQN: nqn("v0")}))
				}
				_, err = b.delete("v0", mode)
				require.NoError(t, err)
				_, err = b.delete("s0", mode)
				require.NoError(t, err)
			})
		}
	}
}

// enlarge moves lvs0 to an 8 GiB bdev.
func (b *bench) enlarge() {
	file, err := os.Create(filepath.Join(b.t.TempDir(), "disk"))
	require.NoError(b.t, err)
	require.NoError(b.t, file.Truncate(8<<30))
	require.NoError(b.t, file.Close())
	_, err = b.rpc.BdevAIOCreate(b.t.Context(), spdkrpc.BdevAIOCreateParams{Name: "large", Filename: file.Name(), BlockSize: new(uint32(4096))})
	require.NoError(b.t, err)
	require.NoError(b.t, b.rpc.BdevLvolDeleteLvstore(b.t.Context(), spdkrpc.BdevLvolDeleteLvstoreParams{LvsName: new("lvs0")}))
	_, err = b.rpc.BdevLvolCreateLvstore(b.t.Context(), spdkrpc.BdevLvolCreateLvstoreParams{BdevName: "large", LvsName: "lvs0"})
	require.NoError(b.t, err)
}

// Until the clone is frozen, a host can discard clusters, and with them an extent page.
func TestExtentPageIsCheckedAgainWhileFrozen(t *testing.T) {
	b := newBench(t, "v26.05")
	id := b.volume("v0")
	b.export("v0", true)
	b.snapshot("v0", "s0")
	b.resize(16)
	readings := 0
	b.q.opts.HasExtentPage = func(_ context.Context, _ *spdkrpc.Client, uuid string, _ uint64) (bool, error) {
		readings++
		return uuid != id || readings == 1, nil
	}
	_, err := b.delete("s0", Mode{Freeze: true})
	require.ErrorAs(t, err, new(*GrownError))
	assert.Equal(t, 3, readings, "the clone, and after the freeze the clone and the snapshot")
	assert.True(t, b.exists("s0"))
	assert.Equal(t, asExported, b.states("v0"))
	assert.Empty(t, b.entries())
}

func TestAllocatedClustersInARangeAreCounted(t *testing.T) {
	for _, c := range []struct {
		allocated, clusters, within uint64
		want                        bool
	}{
		{0, 4, 4, false}, {1, 4, 4, true}, {3, 4, 1, false}, {4, 4, 1, true}, {88, 600, 512, false}, {89, 600, 512, true},
	} {
		assert.Equal(t, c.want, someWithin(c.allocated, 4<<20, c.clusters*4<<20, c.within*4<<20), c)
	}
}

// A snapshot with a larger child snapshot can be deleted only after its child.
func TestSnapshotWithALargerChildIsKept(t *testing.T) {
	b := newBench(t, "v26.05")
	b.volume("v0")
	b.snapshot("v0", "s0")
	b.resize(16)
	b.snapshot("v0", "s1")
	_, err := b.delete("s0", Mode{})
	require.ErrorAs(t, err, new(*GrownError))
	require.ErrorContains(t, err, "delete lvs0/s1 first")
	_, err = b.delete("v0", Mode{})
	require.NoError(t, err)
	_, err = b.delete("s1", Mode{})
	require.NoError(t, err)
	_, err = b.delete("s0", Mode{})
	require.NoError(t, err)
}
