package move

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/request"
)

// small is the size of volumes in tests that move them many times.
const small = 3 * markBytes

// A volume is copied, nodes write to it again, and a second move, to another target, is killed at
// each of its calls. The first copy, which lacks the new data, is never accepted.
func TestOnlyTheLatestCopyIsAccepted(t *testing.T) {
	points := 0
	for _, executed := range []bool{false, true} {
		for at := 1; ; at++ {
			f := newFarm(t, random()[:small])
			_, err := f.mover().Copy(t.Context(), original, nil, nil)
			require.NoError(t, err)
			require.NoError(t, f.mover().Keep(t.Context(), original))
			f.write(original, "newer", 5)
			newer := f.contents(original)

			f.calls, f.failAt, f.executed, f.dies = 0, at, executed, true
			_, err = f.mover().Copy(t.Context(), original, nil, elsewhere)
			ended := f.calls < at
			f.restart()
			where := fmt.Sprintf("died at call %d, executed %v: %v", at, executed, err)
			refused := f.mover().DeleteOriginal(t.Context(), original, copied, nil)
			if f.node[original.String()] == "" {
				require.ErrorIs(t, refused, ErrNotLocked, where)
			} else {
				require.ErrorIs(t, refused, ErrOtherCopy, where)
				require.ErrorContains(t, refused, other.UUID, where)
				_, err = f.mover().Copy(t.Context(), original, nil, nil)
				require.ErrorIs(t, err, ErrOtherCopy, where)
			}
			require.Equal(t, newer, f.contents(original), where)
			_, err = f.mover().Copy(t.Context(), original, nil, elsewhere)
			require.NoError(t, err, where)
			require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrOtherCopy, where)
			require.NoError(t, f.mover().DeleteOriginal(t.Context(), original, other, nil), where)
			require.Equal(t, newer, f.contents(other), where)
			if ended {
				break
			}
			points++
		}
	}
	assert.Greater(t, points, 20)
}

// A volume is copied, and nodes write to it again. The complete copy is no longer accepted, not
// even for a comparison under a new lock: only an uninterrupted lock shows that no node can have
// written to the volume since it was copied.
func TestCopyIsNotAcceptedAfterKeep(t *testing.T) {
	f := newFarm(t, random()[:small])
	_, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	require.NoError(t, f.mover().Keep(t.Context(), original))
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
	assert.Empty(t, f.node, "nodes can attach both volumes")
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrNotLocked)
}

// The lock of an earlier release does not identify its copy.
func TestLockOfAnEarlierReleaseIsNotAccepted(t *testing.T) {
	f := newFarm(t, random()[:small])
	_, err := f.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	f.node[original.String()] = oldNodeOf(original)
	require.ErrorIs(t, f.mover().DeleteOriginal(t.Context(), original, copied, nil), ErrOldLock)
	_, err = f.mover().Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrOldLock)
	_, err = f.mover().Prepare(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrLocked)
	assert.Equal(t, map[string]string{original.String(): oldNodeOf(original)}, f.node)
	require.NoError(t, f.mover().Keep(t.Context(), original))
	assert.Empty(t, f.node)
}

// The test runs random sequences of moves to two targets, with and without --prepare and killed at
// any of their calls, of releases, of writes, and of deletions of copies. The original is deleted
// only if the copy contains its data.
func TestOriginalIsDeletedOnlyIfTheCopyHasItsData(t *testing.T) {
	deleted, refused := 0, map[error]int{}
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 26))
		f := preparableOf(t, small/clusters/512*512)
		delete(f.node, original.String())
		var history []string
		for step := range 25 {
			target := []string{"", "other"}[rnd.IntN(2)]
			id, parameters := f.copies[target], map[string]string{"target": target}
			f.restart()
			if f.calls = 0; rnd.IntN(3) == 0 {
				f.failAt, f.executed, f.dies = 1+rnd.IntN(25), rnd.IntN(2) == 0, rnd.IntN(2) == 0
			}
			var err error
			switch kind := rnd.IntN(14); kind {
			case 0, 1, 2, 3:
				history = append(history, "move to "+id.Target)
				_, err = f.mover().Copy(t.Context(), original, nil, parameters)
			case 4:
				history = append(history, "prepare "+id.Target)
				_, err = f.mover().Prepare(t.Context(), original, nil, parameters)
			case 5:
				history = append(history, "keep")
				err = f.mover().Keep(t.Context(), original)
			case 6, 7, 8:
				history = append(history, "write")
				if f.node[original.String()] == "" {
					f.write(original, fmt.Sprint("step ", step), rnd.Int64N(small/clusters*4))
				}
			case 9, 10:
				f.restart()
				history = append(history, "delete the copy on "+id.Target)
				delete(f.node, id.String())
				delete(f.named, id.String())
				_ = os.Remove(f.file(id.String()))
				f.copies[target] = request.VolumeID{Target: id.Target, UUID: uuid.NewString()}
			case 11:
				history = append(history, "the target loses its exports")
				delete(f.node, id.String())
			default:
				history = append(history, "delete the original for "+id.Target)
				want := f.contents(original)
				err = f.mover().DeleteOriginal(t.Context(), original, id, nil)
				if _, gone := os.Stat(f.file(original.String())); gone != nil {
					require.True(t, bytes.Equal(want, f.contents(id)), "seed %d: %q", seed, history)
					deleted++
				}
				for _, kind := range []error{ErrNotLocked, ErrOtherCopy, ErrUnfinished} {
					if errors.Is(err, kind) {
						refused[kind]++
					}
				}
			}
			if err != nil {
				history = append(history, err.Error())
			}
			if _, gone := os.Stat(f.file(original.String())); gone != nil {
				break
			}
		}
	}
	t.Logf("%d originals were deleted; refused: %v", deleted, refused)
	assert.Greater(t, deleted, 20)
	assert.Len(t, refused, 3)
}
