package move

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/inventory"
	"github.com/spdkgate/spdkgate/driver/request"
)

const worker = "worker-1"

// preparable returns a farm in which a node is using the original, which contains data in clusters
// 0 and 2.
func preparable(t *testing.T) *farm { return preparableOf(t, clusterBytes) }

func preparableOf(t *testing.T, cluster int64) *farm {
	content := make([]byte, clusters*cluster)
	copy(content, bytes.Repeat([]byte("data"), 1000))
	copy(content[2*cluster:], bytes.Repeat([]byte("kept"), 1000))
	f := newFarm(t, content)
	f.cluster = cluster
	f.node[original.String()] = worker
	f.allocated = func(id string) (inventory.Allocation, error) {
		return f.differing(id, make([]byte, clusters*cluster)), nil
	}
	f.changed = func(id, base string) (inventory.Allocation, error) {
		text, err := os.ReadFile(f.file(snapshotID(original, base)))
		if err != nil {
			return inventory.Allocation{}, err
		}
		return f.differing(id, text), nil
	}
	return f
}

// differing returns the clusters of a volume that differ from base.
func (f *farm) differing(id string, base []byte) inventory.Allocation {
	text, err := os.ReadFile(f.file(id))
	require.NoError(f.t, err)
	var list []int
	for i := range clusters {
		at := int64(i) * f.cluster
		if !bytes.Equal(text[at:][:f.cluster], base[at:][:f.cluster]) {
			list = append(list, i)
		}
	}
	a := allocation(list...)
	a.SizeBytes, a.ClusterSize = clusters*f.cluster, f.cluster
	return a
}

// write changes a volume's contents.
func (f *farm) write(id request.VolumeID, text string, at int64) {
	file, err := os.OpenFile(f.file(id.String()), os.O_WRONLY, 0)
	require.NoError(f.t, err)
	_, err = file.WriteAt([]byte(text), at)
	require.NoError(f.t, err)
	require.NoError(f.t, file.Close())
}

// prepare prepares a move, writes to the original, and stops the pods.
func (f *farm) prepare() {
	_, err := f.mover().Prepare(f.t.Context(), original, nil, nil)
	require.NoError(f.t, err)
	f.write(original, "written after the snapshot", 3*f.cluster+5)
	delete(f.node, original.String())
}

// checkMoved checks that a move has succeeded, and that Prepare has left nothing behind.
func (f *farm) checkMoved(where string) {
	assert.True(f.t, bytes.Equal(f.contents(original), f.contents(copied)), where)
	assert.Equal(f.t, map[string]string{original.String(): mover}, f.node, where)
	assert.Len(f.t, f.named, 2, "%s: the snapshot and the temporary volume are deleted: %v", where, f.named)
}

func TestSecondCopyCopiesOnlyChanges(t *testing.T) {
	f := preparable(t)
	before := f.contents(original)
	m, log := f.logging()
	r, err := m.Prepare(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 2*2*clusterBytes, r.ReadBytes, "two clusters were copied and verified")
	assert.Equal(t, map[string]string{original.String(): worker, copied.String(): PrepareNodeOf(original)}, f.node)
	assert.Equal(t, markOf(original.String(), snapshot.UUID), f.contents(copied)[:markBytes])
	assert.True(t, bytes.Equal(before[markBytes:], f.contents(copied)[markBytes:]))
	assert.NotContains(t, f.named, source.String())
	assert.Contains(t, f.named, snapshot.String())
	_, err = m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, export.ErrInUse, "pods still use it")

	f.write(original, "written after the snapshot", 3*clusterBytes+5)
	f.write(original, "new", 3)
	delete(f.node, original.String())
	r, err = m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	f.checkMoved("after the move")
	assert.EqualValues(t, 2*2*clusterBytes+markBytes, r.ReadBytes, "the clusters 0 and 3 were copied and verified, but not cluster 2")
	assert.EqualValues(t, chunkBytes, r.WrittenBytes, "the mark's place is not counted")
	assert.Empty(t, r.SHA256, "not all was read")
	assert.False(t, r.Empty)
	assert.Empty(t, log.String())
	again, err := m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.NotEmpty(t, again.SHA256)
}

// If it is uncertain whether the copy equals the base, or which clusters have changed since then,
// everything is copied and verified. Each case damages a cluster of the copy that is unchanged in
// the original.
func TestUncertainBaseIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *farm)
		reason string
	}{
		"the snapshot was deleted": {func(f *farm) {
			require.NoError(t, os.Remove(f.file(snapshot.String())))
			delete(f.named, snapshot.String())
		}, "no such file"},
		"another snapshot has its name": {func(f *farm) {
			other := request.VolumeID{Target: "old", UUID: "00000000-9a55-4bb1-8f0d-0a7f6f3c2d10"}
			require.NoError(t, os.Rename(f.file(snapshot.String()), f.file(other.String())))
			f.named[other.String()] = f.named[snapshot.String()]
			delete(f.named, snapshot.String())
		}, "no such file"},
		"clusters are not counted": {func(f *farm) {
			was := f.changed
			f.changed = func(id, base string) (inventory.Allocation, error) {
				a, err := was(id, base)
				a.Counted = false
				return a, err
			}
		}, errUncounted.Error()},
		"the changes are unknown": {func(f *farm) { f.changed = nil }, errUnknown.Error()},
		"another size": {func(f *farm) {
			f.changed = func(string, string) (inventory.Allocation, error) {
				return inventory.Allocation{SizeBytes: clusterBytes, ClusterSize: clusterBytes, Bitmap: []byte{0}, Counted: true}, nil
			}
		}, "has 2097152 bytes on its target"},
		"the copy's clusters are unknown": {func(f *farm) {
			was := f.allocated
			f.allocated = func(id string) (inventory.Allocation, error) {
				if id == copied.String() {
					return inventory.Allocation{}, errUnknown
				}
				return was(id)
			}
		}, errUnknown.Error()},
		"the copy was not locked":       {func(f *farm) { delete(f.node, copied.String()) }, "was not locked since"},
		"the mark has no valid base":    {func(f *farm) { f.write(copied, "x", int64(bytes.Index(f.contents(copied), []byte(snapshot.UUID)))) }, ""},
		"the mark has more than a base": {func(f *farm) { f.write(copied, "x", markBytes-1) }, ""},
		"the mark is long":              {func(f *farm) { f.write(copied, string(bytes.Repeat([]byte("x"), markBytes-200)), 200) }, ""},
	} {
		f := preparable(t)
		f.prepare()
		f.write(copied, "damaged", 2*clusterBytes+7)
		c.change(f)
		m, log := f.logging()
		r, err := m.Copy(t.Context(), original, nil, nil)
		require.NoError(t, err, name)
		f.checkMoved(name)
		assert.NotEmpty(t, r.SHA256, name)
		assert.Contains(t, log.String(), c.reason, name)
		assert.Equal(t, c.reason == "", log.Len() == 0, name)
	}
}

// --verify-all verifies even the clusters that were not copied again.
func TestVerifyAllVerifiesAPreparedCopy(t *testing.T) {
	f := preparable(t)
	f.prepare()
	f.write(copied, "damaged", 2*clusterBytes+7)
	m := f.mover()
	m.VerifyAll = true
	_, err := m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrDiffers)
	assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], "the base is wrong")
	r, err := m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.NotEmpty(t, r.SHA256)
	f.checkMoved("repeated")
}

// A move removes the base from the mark before its first write, because the copy then no longer
// equals the base. After a failed move, the original may even become equal to the snapshot again.
func TestMoveRemovesTheBaseBeforeWriting(t *testing.T) {
	for want, interrupt := range map[error]func(f *farm, cancel func(error)){
		errInjected: func(_ *farm, cancel func(error)) { cancel(errInjected) },
		ErrChanged:  func(f *farm, _ func(error)) { f.write(original, "changed", 4*clusterBytes) },
	} {
		name := want.Error()
		f := preparable(t)
		f.prepare()
		ctx, cancel := context.WithCancelCause(t.Context())
		was := f.allocated
		f.allocated = func(id string) (inventory.Allocation, error) {
			if bytes.Equal(f.contents(original)[3*clusterBytes:][:100], f.contents(copied)[3*clusterBytes:][:100]) {
				interrupt(f, cancel)
			}
			return was(id)
		}
		_, err := f.mover().Copy(ctx, original, nil, nil)
		require.ErrorIs(t, err, want, name)
		assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], name)
		f.allocated = was
		f.write(original, string(make([]byte, 100)), 3*clusterBytes) // unmapped
		_, err = f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err, name)
		f.checkMoved(name)
	}
}

// Prepare is killed at each of its calls. The mark never names a snapshot that differs from the
// copy, the node can still use the original, and both a repeated Prepare and a move succeed.
func TestKilledPrepareCanBeRepeated(t *testing.T) {
	points := 0
	for _, executed := range []bool{false, true} {
		for at := 1; ; at++ {
			repeat := executed == (at%2 == 0)
			f := preparableOf(t, 300<<10)
			f.failAt, f.executed, f.dies = at, executed, true
			_, err := f.mover().Prepare(t.Context(), original, nil, nil)
			if f.calls < at {
				require.NoError(t, err)
				break
			}
			points++
			where := fmt.Sprintf("call %d, executed %v, repeated %v: %v", at, executed, repeat, err)
			require.Error(t, err, where)
			assert.Equal(t, worker, f.node[original.String()], where)
			f.restart()
			based := false
			if f.named[copied.String()] != "" {
				base, _ := readMark(f.contents(copied)[:markBytes], original.String())
				if based = base != ""; based {
					assert.True(t, bytes.Equal(f.contents(snapshot)[markBytes:], f.contents(copied)[markBytes:]), where)
				}
			}
			require.Error(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), where)
			f.write(original, "written after the snapshot", 3*f.cluster+5)
			if repeat {
				_, err := f.mover().Prepare(t.Context(), original, nil, nil)
				if based {
					require.ErrorIs(t, err, ErrPrepared, where)
				} else {
					require.NoError(t, err, where)
				}
				f.write(original, "and after the second", 4*f.cluster)
			}
			delete(f.node, original.String())
			_, err = f.mover().Copy(t.Context(), original, nil, nil)
			require.NoError(t, err, where)
			f.checkMoved(where)
		}
	}
	assert.Greater(t, points, 20)
	t.Logf("%d points", points)
}

// The move after Prepare is killed at each of its calls.
func TestKilledSecondCopyCanBeRepeated(t *testing.T) {
	points := 0
	for _, executed := range []bool{false, true} {
		for at := 1; ; at++ {
			f := preparableOf(t, 300<<10)
			f.prepare()
			f.calls, f.failAt, f.executed, f.dies = 0, at, executed, true
			_, err := f.mover().Copy(t.Context(), original, nil, nil)
			if f.calls < at {
				require.NoError(t, err)
				break
			}
			points++
			where := fmt.Sprintf("call %d, executed %v: %v", at, executed, err)
			f.restart()
			if err != nil {
				require.ErrorIs(t, err, errInjected, where)
				f.write(original, "later", 4*f.cluster)
				f.write(original, string(make([]byte, 100)), 3*f.cluster) // unmapped
			}
			if bytes.Equal(f.contents(original), f.contents(copied)) == (err == nil) {
				_, err = f.mover().Copy(t.Context(), original, nil, nil)
			}
			if err != nil {
				require.ErrorIs(t, err, ErrCopied, where) // the copy was complete before the last write
				continue
			}
			f.checkMoved(where)
		}
	}
	assert.Greater(t, points, 20)
	t.Logf("%d points", points)
}

func TestPrepareRefusesUnsuitableVolumes(t *testing.T) {
	f := preparable(t)
	f.prepare()
	_, err := f.mover().Prepare(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrPrepared)
	assert.Equal(t, markOf(original.String(), snapshot.UUID), f.contents(copied)[:markBytes])
	assert.Equal(t, PrepareNodeOf(original), f.node[copied.String()])

	// After Keep, the snapshot no longer exists. A new snapshot must not be copied to the same
	// copy, because a process that copies the old snapshot may still be running.
	require.NoError(t, f.mover().Keep(t.Context(), original))
	assert.Len(t, f.named, 2)
	_, err = f.mover().Prepare(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrOtherBase)
	assert.Empty(t, f.node, "the copy can be deleted")
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	f.checkMoved("without a base")

	_, err = f.mover().Prepare(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, f.mover().Keep(t.Context(), original))
	_, err = f.mover().Prepare(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
	assert.Empty(t, f.node, "nodes can attach the copy")
	assert.Len(t, f.named, 2)
}

// A prepared copy is not complete, even if a move has locked the original.
func TestPreparedCopyIsNotComplete(t *testing.T) {
	for _, node := range []string{PrepareNodeOf(original), mover, ""} {
		f := preparable(t)
		f.prepare()
		f.node[original.String()], f.node[copied.String()], f.used[copied.String()] = mover, node, true
		require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrUnfinished, node)
	}
}

// If the changes since the snapshot cannot be listed, Prepare copies the snapshot but records no
// base. If the temporary volume was written to, Prepare fails.
func TestPrepareRecordsOnlyACertainBase(t *testing.T) {
	for name, c := range map[string]struct {
		answer inventory.Allocation
		err    error
		want   error
	}{
		"unknown":    {err: errUnknown},
		"uncounted":  {answer: inventory.Allocation{SizeBytes: clusters * clusterBytes, ClusterSize: clusterBytes, Bitmap: []byte{0}}},
		"written to": {answer: allocation(1), want: ErrChanged},
	} {
		f := preparable(t)
		f.changed = func(string, string) (inventory.Allocation, error) { return c.answer, c.err }
		m, log := f.logging()
		_, err := m.Prepare(t.Context(), original, nil, nil)
		assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], name)
		if c.want != nil {
			require.ErrorIs(t, err, c.want, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Contains(t, log.String(), "will read the whole volume", name)
		assert.Len(t, f.named, 2, name)
		assert.NoFileExists(t, f.file(snapshot.String()))
		delete(f.node, original.String())
		_, err = m.Copy(t.Context(), original, nil, nil)
		require.NoError(t, err, name)
		f.checkMoved(name)
	}
}
