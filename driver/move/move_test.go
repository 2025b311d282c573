package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/connect"
	"github.com/spdkgate/spdkgate/driver/export"
	"github.com/spdkgate/spdkgate/driver/hostauth"
	"github.com/spdkgate/spdkgate/driver/request"
)

// random returns random contents with zeros in the middle. The length of the contents is not a
// multiple of the chunk size.
func random() []byte {
	b := make([]byte, 5*chunkBytes+3*markBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		if i < 2*chunkBytes || i > 3*chunkBytes+17 {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

func TestMoveCopiesTheVolume(t *testing.T) {
	want := random()
	f := newFarm(t, want)
	f.growing = chunkBytes
	var phases []Progress
	m := f.mover()
	m.Progress = func(p Progress) { phases = append(phases, p) }
	r, err := m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, copied.String(), r.id())
	assert.Equal(t, append(bytes.Clone(want), make([]byte, chunkBytes)...), f.contents(copied))
	assert.Equal(t, want, f.contents(original), "the original is only read")
	assert.Len(t, r.SHA256, 64)
	assert.False(t, r.Empty)
	assert.Equal(t, int64(len(want)-chunkBytes-markBytes), r.WrittenBytes, "a chunk of zeroes is not written, and the mark's place is not counted")
	assert.Contains(t, phases, Progress{"copy", int64(len(want)), int64(len(want))})
	assert.Equal(t, Progress{"verify", int64(len(want)), int64(len(want))}, phases[len(phases)-1])
	assert.Equal(t, map[string]string{original.String(): mover}, f.node, "nodes cannot attach the original, but can attach the copy")

	// A repeated move does not overwrite the copy, which may now be newer than the original.
	f.node[copied.String()] = "worker-1"
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, export.ErrInUse)
	delete(f.node, copied.String())
	again, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err, "nothing was changed")
	assert.Equal(t, r.SHA256, again.SHA256)
	assert.Zero(t, again.WrittenBytes)
	for _, at := range []int{0, 4 * chunkBytes} {
		text := f.contents(copied)
		text[at]++
		require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
		_, err = f.mover().Copy(t.Context(), original, nil, nil)
		require.ErrorIs(t, err, ErrCopied)
		assert.Equal(t, text, f.contents(copied), "data written to the copy stays")
		assert.NotContains(t, f.node, copied.String(), "nodes can still attach the copy")
		text[at]--
		require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
	}
	assert.Equal(t, mover, f.node[original.String()], "nodes still cannot attach it")

	// A repeated move or a deletion of the original was interrupted while it read the copy, which
	// contains newer data than the original. The copy is complete, because it has no mark.
	text := f.contents(copied)
	text[0]++
	require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
	f.node[copied.String()] = mover
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
	assert.Equal(t, mover, f.node[copied.String()])

	require.NoError(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil))
	assert.NoFileExists(t, f.file(original.String()))
	assert.Equal(t, text, f.contents(copied))
	assert.Empty(t, f.node, "nodes can attach the copy")
}

// If the original of a copy cannot be deleted because a call fails, nodes can still attach the
// copy.
func TestFailedDeletionLeavesTheCopyUsable(t *testing.T) {
	published := 0
	for at := 1; ; at++ {
		f := newFarm(t, random()[:chunkBytes])
		_, err := f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err)
		f.calls, f.failAt = 0, at
		err = f.mover().DeleteOriginal(t.Context(), original, copied, nil)
		if f.calls < at {
			require.NoError(t, err)
			require.Greater(t, at, 4)
			assert.Equal(t, 2, published, "the copy could not be detached or unpublished")
			return
		}
		if f.node[copied.String()] != "" {
			published++
		}
		if errors.Is(err, errInjected) {
			f.failAt = 0
			err = f.mover().DeleteOriginal(t.Context(), original, copied, nil)
		}
		if !errors.Is(err, ErrNotLocked) { // the original was unlocked before the failure
			require.NoError(t, err, at)
			assert.NoFileExists(t, f.file(original.String()), at)
		}
		assert.NotContains(t, f.node, copied.String(), at)
	}
}

// If a move fails or is killed at any of its calls, the original remains unchanged, and a repeated
// move succeeds. An unfinished copy is never mistaken for a complete copy.
func TestInterruptedMoveIsCompleted(t *testing.T) {
	want := random()[:chunkBytes+3*markBytes]
	points, retried := 0, 0
	for _, executed := range []bool{false, true} {
		for at := 1; ; at++ {
			f := newFarm(t, want)
			f.failAt, f.executed = at, executed
			_, err := f.mover().Copy(t.Context(), original, nil, nil)
			if f.calls < at {
				require.NoError(t, err)
				break
			}
			points++
			where := fmt.Sprintf("call %d, executed %v: %v", at, executed, err)
			assert.Equal(t, want, f.contents(original), where)
			if err == nil { // the last query about the original is retried, and a failed search for a snapshot is only logged
				retried++
				assert.Equal(t, want, f.contents(copied), where)
				continue
			}
			require.ErrorIs(t, err, errInjected, where)
			complete := f.named[copied.String()] != "" && bytes.Equal(want, f.contents(copied))
			if !complete && f.node[copied.String()] == "" && f.named[copied.String()] != "" && f.used[copied.String()] {
				t.Errorf("%s: an unfinished copy could be mistaken for a complete one", where)
			}
			if !complete {
				err := f.mover().DeleteOriginal(t.Context(), original, copied, nil)
				require.Error(t, err, where)
				assert.Equal(t, want, f.contents(original), where)
			}
			f.attached = map[string]int{} // the machine restarts
			_, err = f.mover().Copy(t.Context(), original, nil, nil)
			require.NoError(t, err, where)
			assert.Equal(t, want, f.contents(copied), where)
			assert.Equal(t, mover, f.node[original.String()], where)
		}
	}
	assert.Greater(t, points, 15)
	assert.Equal(t, 4, retried)
	t.Logf("%d points", points)
}

// TestInterruptedSecondMoveKeepsTheNewerOriginal completes a move, lets nodes write to the original
// again, and stops a second move at each of its calls. Until then, only the original contains the
// new data.
func TestInterruptedSecondMoveKeepsTheNewerOriginal(t *testing.T) {
	points := 0
	for _, executed := range []bool{false, true} {
		for at := 1; ; at++ {
			f := newFarm(t, random())
			_, err := f.mover().Copy(t.Context(), original, nil, nil)
			require.NoError(t, err)
			require.NoError(t, f.mover().Keep(t.Context(), original))
			newer := append([]byte("newer"), random()[5:]...)
			require.NoError(t, os.WriteFile(f.file(original.String()), newer, 0o600))

			f.calls, f.failAt, f.executed, f.dies = 0, at, executed, true
			_, err = f.mover().Copy(t.Context(), original, nil, nil)
			if f.calls < at {
				require.ErrorIs(t, err, ErrCopied)
				break
			}
			require.Error(t, err)
			points++
			f.restart()
			delete(f.node, copied.String()) // even if its target has lost the export
			require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrNotLocked, "died at call %d, executed %v", at, executed)
			require.Equal(t, newer, f.contents(original))
		}
	}
	assert.Greater(t, points, 8)
}

// If the process is killed while it is copying data, a repeated move continues the copy.
func TestInterruptedCopyContinues(t *testing.T) {
	want := random()
	f := newFarm(t, want)
	ctx, cancel := context.WithCancel(t.Context())
	f.connecting = func(id string) {
		if id == copied.String() {
			cancel()
		}
	}
	_, err := f.mover().Copy(ctx, original, nil, nil)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes])
	assert.Equal(t, map[string]string{copied.String(): mover}, f.node, "the original is free again")
	assert.Zero(t, f.attached[original.String()]+f.attached[copied.String()])
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrNotLocked)

	// The mark identifies an unfinished copy even if the target has lost the export.
	require.NoError(t, os.WriteFile(f.file(copied.String()), append(markOf(original.String(), ""), want[markBytes:]...), 0o600))
	f.node = map[string]string{original.String(): mover}
	f.used[copied.String()] = true
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrUnfinished)
	delete(f.node, original.String())
	f.connecting = nil
	r, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.Zero(t, r.WrittenBytes, "all was there")
	assert.False(t, r.Empty)
	assert.Equal(t, want, f.contents(copied))
}

func TestDifferingCopyIsCorrected(t *testing.T) {
	want := random()
	f := newFarm(t, want)
	m := f.mover()
	m.Progress = func(p Progress) {
		if p.Phase == "copy" && p.Done == p.Total {
			file, err := os.OpenFile(f.file(copied.String()), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte{want[chunkBytes+5] + 1}, chunkBytes+5)
			require.NoError(t, errors.Join(err, file.Close()))
		}
	}
	_, err := m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrDiffers)
	assert.ErrorContains(t, err, "bytes 1048576 to 2097152")
	assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], "it is still unfinished")
	assert.NotContains(t, f.node, original.String())
}

func TestMoveRefusesVolumesInUse(t *testing.T) {
	f := newFarm(t, random())
	f.node[original.String()] = "worker-1"
	_, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, export.ErrInUse)
	assert.Equal(t, "worker-1", f.node[original.String()])
	assert.Empty(t, f.named[copied.String()])
	delete(f.node, original.String())

	_, err = f.mover().Copy(t.Context(), original, nil, map[string]string{"target": "itself"})
	require.ErrorIs(t, err, request.ErrInvalid)
	assert.Equal(t, random(), f.contents(original))
	assert.Empty(t, f.node)
	_, err = f.mover().Copy(t.Context(), request.VolumeID{Target: "old", UUID: copied.UUID}, nil, nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	// DeleteOriginal must refuse a volume that is not the copy, and a copy that a node has written
	// to.
	newer := append([]byte("newer"), random()[5:]...)
	require.NoError(t, os.WriteFile(f.file(copied.String()), newer, 0o600))
	f.named[copied.String()] = request.MoveCopyName(original.UUID)
	f.node[original.String()] = otherMover
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrOtherCopy)
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, original, nil), ErrOtherCopy)
	assert.FileExists(t, f.file(original.String()))
	require.NoError(t, f.mover().Keep(t.Context(), original))
	assert.Empty(t, f.node)
	f.named[copied.String()], f.used[copied.String()] = request.MoveCopyName(original.UUID), true
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
	assert.NotContains(t, f.node, original.String(), "the original is as before")
	assert.Equal(t, newer, f.contents(copied))
}

// After a move, an empty volume may still be formatted.
func TestEmptyVolumeStaysFormattable(t *testing.T) {
	f := newFarm(t, make([]byte, 2*chunkBytes))
	r, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.True(t, r.Empty)
	assert.Zero(t, r.WrittenBytes)
	assert.Equal(t, make([]byte, 2*chunkBytes), f.contents(copied))
	f = newFarm(t, append(make([]byte, 2*chunkBytes), bytes.Repeat([]byte{1}, markBytes)...))
	for range 2 {
		r, err = f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err)
		assert.False(t, r.Empty, "a file system may begin with zeroes")
	}
}

// Both volumes are exported with authentication if they require it.
func TestMovedVolumesAreExportedWithAuthentication(t *testing.T) {
	f := newFarm(t, random())
	f.requires = "dhchap"
	authenticates := map[string]string{hostauth.KeyMethod: "dhchap", "other": "x"}
	_, err := f.mover().Copy(t.Context(), original, authenticates, nil)
	require.ErrorIs(t, err, hostauth.ErrMissing)
	assert.Empty(t, f.authenticated)

	m := f.mover()
	const key = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:"
	m.Secrets = map[string]string{hostauth.SecretDHCHAPKey: key}
	_, err = m.Copy(t.Context(), original, authenticates, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{copied.String(), original.String()}, f.authenticated)
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, authenticates), hostauth.ErrMissing)
	require.NoError(t, m.DeleteOriginal(t.Context(), original, copied, authenticates))
	assert.Equal(t, copied.String(), f.authenticated[2])
}

// busy is a Connector on a machine where another program has opened the original.
type busy struct{ connector }

func (b busy) Connect(ctx context.Context, e connect.Export) (connect.Device, error) {
	d, err := b.connector.Connect(ctx, e)
	if b.id(e) == original.String() {
		return connect.Device{}, errors.Join(err, syscall.EBUSY)
	}
	return d, err
}

// If another move of the volume has opened the original, this move fails and leaves the original
// locked for the other move.
func TestOriginalStaysLockedForTheOtherMove(t *testing.T) {
	f := newFarm(t, random())
	m := f.mover()
	m.Connector = func(node string) (connect.Connector, error) { return busy{connector{f, node}}, nil }
	_, err := m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, syscall.EBUSY)
	assert.Equal(t, mover, f.node[original.String()])
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
}
