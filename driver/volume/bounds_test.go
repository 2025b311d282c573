package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/class"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/rpcschema/spdkrpc"
)

// The names of lvols are stored on the target, so an upgraded driver must derive the same names as
// the version that created the lvols.
func TestStoredNamesNeverChange(t *testing.T) {
	const id = "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"
	at := time.Unix(1_800_000_000, 0)
	x63, x64 := strings.Repeat("x", 63), strings.Repeat("x", 64)
	for want, got := range map[string]string{
		x63: LvolName(x63),
		"v" + x64[:29] + "-7ce100971f64e7001e8fe5a51973ecdf":              LvolName(x64),
		"va-b-c14cddc033f64b9dea80ea675cf280a0":                           LvolName("a/b"),
		"snap.phdnme2exyaoos3e.8e2dcb9d3a794362965efdb0cd3f4b8d.6b49d200": snapshotName("snapshot-1", id, at),
		"base.aiyj6tepqeae7nss.8e2dcb9d3a794362965efdb0cd3f4b8d":          baseName("pvc-2", id),
		"helper.aiyj6tepqeae7nss":                                         helperName("pvc-2"),
		"replica.8e2dcb9d3a794362965efdb0cd3f4b8d.1":                      ReplicaID{id, 1}.LvolName(),
		x63[:58] + ".used":                                                usedName(x63[:58]),
		x63[:25] + "-" + "6e20a1199bf58ddb8fadbe63725f1dd9" + ".used":     usedName(x63[:59]),
	} {
		assert.Equal(t, want, got)
	}
	assert.Equal(t, 64, maxDepth, "SPDK crashes when it loads chains of 300")
	assert.Equal(t, 32, MaxGroup, "a proxy freezes at most 32 volumes in one call")
	for size := 1; size <= MaxGroup; size++ {
		g := newGroupID("group-1", at, size, 1)
		assert.Equal(t, size, g.Size())
		assert.False(t, g.Several())
		assert.Equal(t, at.UTC(), g.createdAt())
		assert.True(t, strings.HasPrefix(g.snapshotOf(id), "snap."+g.Hash+".8e2dcb9d3a794362965efdb0cd3f4b8d.6b49d200"))
		assert.True(t, newGroupID("group-1", at, size, 2).Several())
	}
	_, ok := ParseGroupID("group.x")
	assert.False(t, ok)
}

// A clone without a parent is completed even if it is smaller than the source, but not if it is a
// snapshot or has been used.
func TestUnfinishedCloneIsRecognized(t *testing.T) {
	source := Volume{Store: "lvs0", SizeBytes: 8 * MiB}
	made := Volume{Store: "lvs0", Name: "pvc-2", SizeBytes: 4 * MiB, Thin: true, Allocated: new(uint64)}
	assert.True(t, isUnfinishedClone(made, source))
	used, snapshot := made, made
	used.Name, snapshot.Snapshot = "pvc-2.used", true
	assert.False(t, isUnfinishedClone(used, source))
	assert.False(t, isUnfinishedClone(snapshot, source))
}

func TestSizesAreRoundedToClusters(t *testing.T) {
	st := Store{ClusterBytes: 4 * MiB}
	for n, want := range map[int64]int64{0: 0, 1: 4 * MiB, 4 * MiB: 4 * MiB, 4*MiB + 1: 8 * MiB} {
		assert.Equal(t, want, st.Size(n), n)
	}
	assert.EqualValues(t, 2*MiB, Store{ClusterBytes: 1 << 19}.Size(MiB+1), "SPDK expects whole mebibytes")
	assert.Equal(t, "5 or more", Spec{MinBytes: 5}.sizes())
	assert.Equal(t, "5 to 6", Spec{MinBytes: 5, MaxBytes: 6}.sizes())
}

// A volume can grow to exactly its limit, and a thick volume into exactly the free space.
func TestVolumeGrowsToItsLimits(t *testing.T) {
	b := newTestService(t, export.TCP)
	v := b.create(t, "pvc-1", 4)
	size, err := b.Expand(t.Context(), v.UUID, 7*MiB, 8*MiB)
	require.NoError(t, err)
	assert.EqualValues(t, 8*MiB, size)
	size, err = b.Expand(t.Context(), v.UUID, 8*MiB, 8*MiB)
	require.NoError(t, err)
	assert.EqualValues(t, 8*MiB, size)
	whole := b.store(t, "lvs0").TotalBytes
	size, err = b.Expand(t.Context(), v.UUID, whole, 0)
	require.NoError(t, err)
	assert.Equal(t, whole, size)
	_, err = b.Expand(t.Context(), v.UUID, whole+1, 0)
	require.ErrorIs(t, err, ErrOutOfRange)

	thick, err := b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "thick", MinBytes: 4 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	_, err = b.Create(t.Context(), b.store(t, "lvs1"), Spec{Name: "other", MinBytes: 8 * MiB, Class: class.Class{Thick: true}})
	require.NoError(t, err)
	free := b.store(t, "lvs1").FreeBytes
	_, err = b.Expand(t.Context(), thick.UUID, 4*MiB+free+1, 0)
	require.ErrorIs(t, err, ErrNoSpace)
	size, err = b.Expand(t.Context(), thick.UUID, 4*MiB+free, 0)
	require.NoError(t, err)
	assert.Equal(t, 4*MiB+free, size)
}

// Clones are detached if their copies fit exactly.
func TestCopiesMayUseAllFreeSpace(t *testing.T) {
	b, _, s := newDetachingService(t)
	b.restore(t, "pvc-2", s)
	leave := func(name string, bytes int64) {
		_, err := b.Create(t.Context(), b.store(t, "lvs0"), Spec{Name: name, MinBytes: b.store(t, "lvs0").FreeBytes - bytes, Class: class.Class{Thick: true}})
		require.NoError(t, err)
	}
	leave("filler-1", 20*MiB)
	require.NoError(t, b.Undeletable(t.Context(), s.UUID))
	leave("filler-2", 16*MiB)
	require.ErrorIs(t, b.Undeletable(t.Context(), s.UUID), ErrNoSpace)
	require.NoError(t, b.Undeletable(t.Context(), "8e2dcb9d-3a79-4362-965e-fdb0cd3f4b8d"), "it does not exist")
}

// A tower is a caller that reports a chain of bdevs: bdev n is on bdev n+1, and the last is a
// device.
type tower struct {
	spdkrpc.Caller
	height int
}

func (c tower) Call(_ context.Context, _ string, params, result any) error {
	text, err := json.Marshal(params)
	var p spdkrpc.BdevGetBdevsParams
	if err = errors.Join(err, json.Unmarshal(text, &p)); err != nil {
		return err
	}
	name := *p.Name
	n, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	b := spdkrpc.BdevInfo{Name: name, ProductName: "Malloc disk", SupportedIOTypes: spdkrpc.BdevSupportedIOTypes{Unmap: true}}
	if n < c.height {
		b = spdkrpc.BdevInfo{Name: name, ProductName: "passthru"}
		b.DriverSpecific.Passthru = &spdkrpc.BdevDriverPassthru{BaseBdevName: fmt.Sprint(n + 1)}
	}
	*result.(*[]spdkrpc.BdevInfo) = []spdkrpc.BdevInfo{b}
	return nil
}

// At most 256 bdevs below an lvstore are examined.
func TestDeepBdevStacksAreNotUsed(t *testing.T) {
	for height, usable := range map[int]bool{1: true, 2: true, 256: true, 257: false} {
		s := NewTarget(Config{}).Service(spdkrpc.NewClient(tower{height: height}))
		err := s.checkBase(AskOnce(t.Context()), "1")
		if usable {
			require.NoError(t, err, height)
		} else {
			require.ErrorIs(t, err, ErrNested, height)
		}
		assert.Equal(t, height == 1, s.judgeBase(AskOnce(t.Context()), "1").unmapZeroes && usable, height)
	}
}
