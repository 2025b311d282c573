package move

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/inventory"
)

const (
	clusterBytes = 2 * chunkBytes
	clusters     = 5
)

// allocation returns the allocation of a 10 MiB volume in which the listed clusters are allocated.
func allocation(list ...int) inventory.Allocation {
	a := inventory.Allocation{SizeBytes: clusters * clusterBytes, ClusterSize: clusterBytes, Bitmap: make([]byte, 1), Counted: true}
	for _, i := range list {
		a.Bitmap[0] |= 1 << i
	}
	return a
}

// sparse returns a farm in which the original has only the clusters 0 and 3. In all other clusters,
// the original's file contains bytes that no host can read. want is the content that hosts read.
// The copy is thin: the first write to a cluster allocates it, and its unwritten parts then contain
// stale bytes of a deleted volume.
func sparse(t *testing.T) (f *farm, want []byte) {
	want = make([]byte, clusters*clusterBytes)
	copy(want[:clusterBytes], bytes.Repeat([]byte("data"), clusterBytes/8)) // the first half
	copy(want[3*clusterBytes+chunkBytes:], bytes.Repeat([]byte("more"), chunkBytes/4))
	file := bytes.Clone(want)
	for _, i := range []int{1, 2, 4} {
		copy(file[i*clusterBytes:], bytes.Repeat([]byte("unread"), 1000))
	}
	f = newFarm(t, file)
	stale := [clusters]bool{}
	f.allocated = func(id string) (inventory.Allocation, error) {
		if id == original.String() {
			return allocation(0, 3), nil
		}
		var list []int
		content := f.contents(copied)
		for i := range clusters {
			part := content[i*clusterBytes:][:clusterBytes]
			if isZero(part) {
				continue
			}
			list = append(list, i)
			for at := 0; at < clusterBytes && !stale[i]; at += chunkBytes {
				if isZero(part[at : at+chunkBytes]) {
					copy(part[at+100:], "stale")
				}
			}
			stale[i] = true
		}
		require.NoError(t, os.WriteFile(f.file(id), content, 0o600))
		return allocation(list...), nil
	}
	return f, want
}

func (f *farm) logging() (m Mover, log *strings.Builder) {
	log = &strings.Builder{}
	m = f.mover()
	m.Log = slog.New(slog.NewTextHandler(log, nil))
	return m, log
}

func TestOnlyAllocatedClustersAreRead(t *testing.T) {
	f, want := sparse(t)
	m, log := f.logging()
	r, err := m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, want, f.contents(copied), "without stale bytes")
	assert.EqualValues(t, 2*2*clusterBytes, r.ReadBytes-markBytes, "the two clusters were copied and verified, and the first block was read last")
	assert.Empty(t, log.String())

	// A complete verification returns the same hash.
	full := newFarm(t, want)
	whole, err := full.mover().Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.Equal(t, whole.SHA256, r.SHA256)
	assert.EqualValues(t, 2*clusters*clusterBytes, whole.ReadBytes-markBytes)

	// A repeated move only verifies the copy.
	r, err = m.Copy(t.Context(), original, nil, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 2*clusterBytes, r.ReadBytes)
	text := f.contents(copied)
	copy(text[3*clusterBytes:], "newer")
	require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
	_, err = m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
	text = bytes.Clone(want)
	copy(text[4*clusterBytes:], "written to a cluster that the original does not have")
	require.NoError(t, os.WriteFile(f.file(copied.String()), text, 0o600))
	_, err = m.Copy(t.Context(), original, nil, nil)
	require.ErrorIs(t, err, ErrCopied)
}

// Stale bytes in the copy are overwritten. An interrupted copy may contain data in any cluster, and
// a thick copy contains data of deleted volumes.
func TestStaleBytesOfTheCopyAreOverwritten(t *testing.T) {
	for name, known := range map[string]bool{"the copy's clusters are known": true, "they are unknown": false} {
		f, want := sparse(t)
		m, log := f.logging()
		was := f.allocated
		f.allocated = func(id string) (inventory.Allocation, error) {
			if id == original.String() {
				return was(id)
			}
			if !known {
				return inventory.Allocation{}, errUnknown
			}
			return allocation(0, 1, 2, 3, 4), nil
		}
		f.connecting = func(id string) {
			if id == copied.String() {
				content := bytes.Repeat([]byte("stale"), clusters*clusterBytes/5)
				copy(content, make([]byte, markBytes))
				require.NoError(t, os.WriteFile(f.file(id), content, 0o600))
			}
		}
		r, err := m.Copy(t.Context(), original, nil, nil)
		require.NoError(t, err, name)
		assert.Equal(t, want, f.contents(copied), name)
		assert.EqualValues(t, 2*2*clusterBytes, r.ReadBytes-markBytes, name)
		assert.Equal(t, !known, strings.Contains(log.String(), "the whole volume is read"), name)
	}
}

// If the allocated clusters are unknown, both volumes are read completely, and the reason is
// logged.
func TestUnknownClustersAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		answer inventory.Allocation
		err    error
		reason string
	}{
		"refused":      {err: errUnknown, reason: errUnknown.Error()},
		"another size": {answer: inventory.Allocation{SizeBytes: clusterBytes, ClusterSize: clusterBytes, Bitmap: []byte{1}, Counted: true}, reason: "has 2097152 bytes on its target, but 10485760"},
	} {
		f, want := sparse(t)
		require.NoError(t, os.WriteFile(f.file(original.String()), want, 0o600))
		f.allocated = func(string) (inventory.Allocation, error) { return c.answer, c.err }
		m, log := f.logging()
		r, err := m.Copy(t.Context(), original, nil, nil)
		require.NoError(t, err, name)
		assert.Equal(t, want, f.contents(copied), name)
		assert.EqualValues(t, 2*clusters*clusterBytes, r.ReadBytes-markBytes, name)
		assert.Contains(t, log.String(), "the whole volume is read", name)
		assert.Contains(t, log.String(), c.reason, name)
	}
}

// An allocated cluster that is missing from a list is detected, either through the target's cluster
// count or because the whole volume is read.
func TestClustersMissingFromTheListAreDetected(t *testing.T) {
	for name, c := range map[string]struct {
		lost, counted, all bool
		readEverything     bool
	}{
		"complete list":                  {counted: true},
		"complete list, verify all":      {counted: true, all: true, readEverything: true},
		"complete list, not counted":     {readEverything: true},
		"a cluster is lost, verify all":  {lost: true, counted: true, all: true, readEverything: true},
		"a cluster is lost, not counted": {lost: true, readEverything: true},
	} {
		f, want := sparse(t)
		require.NoError(t, os.WriteFile(f.file(original.String()), want, 0o600))
		was := f.allocated
		f.allocated = func(id string) (inventory.Allocation, error) {
			a, err := was(id)
			if a.Counted = c.counted; id == original.String() && c.lost {
				a.Bitmap[0] &^= 1 << 3
			}
			return a, err
		}
		m, log := f.logging()
		m.VerifyAll = c.all
		r, err := m.Copy(t.Context(), original, nil, nil)
		assert.Equal(t, !c.counted, strings.Contains(log.String(), "does not report the number of clusters"), name)
		if c.lost {
			require.ErrorIs(t, err, ErrDiffers, name)
			assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, want, f.contents(copied), name)
		verified := int64(2 * clusterBytes)
		if c.readEverything {
			verified = clusters * clusterBytes
		}
		assert.Equal(t, 2*clusterBytes+verified, r.ReadBytes-markBytes, name)
	}
}

// If the original is resized during the copy, the move fails, even if the clusters of the original
// are unknown.
func TestResizedOriginalIsDetected(t *testing.T) {
	for name, size := range map[string]int64{"it has grown": 2 * clusters * clusterBytes, "it has shrunk": clusterBytes} {
		f, _ := sparse(t)
		f.allocated = nil
		m := f.mover()
		m.Progress = func(p Progress) {
			if p.Phase == "verify" && p.Done == p.Total {
				require.NoError(t, os.Truncate(f.file(original.String()), size))
			}
		}
		_, err := m.Copy(t.Context(), original, nil, nil)
		require.ErrorIs(t, err, ErrChanged, name)
		assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], name)
		assert.NotContains(t, f.node, original.String(), "%s: nodes can attach the original again", name)
	}
}

// The copy is not completed if the original's clusters changed during the copy, or if it is unknown
// whether they changed.
func TestChangedOriginalIsDetected(t *testing.T) {
	for name, c := range map[string]struct {
		later inventory.Allocation
		err   error
		want  error
	}{
		"a cluster was allocated": {later: allocation(0, 1, 3), want: ErrChanged},
		"a cluster was freed":     {later: allocation(0), want: ErrChanged},
		"it has grown":            {later: inventory.Allocation{SizeBytes: 20 << 20, ClusterSize: clusterBytes, Bitmap: []byte{9}, Counted: true}, want: ErrChanged},
		"unknown":                 {err: errUnknown, want: errUnknown},
	} {
		f, _ := sparse(t)
		was, asked, repeated := f.allocated, 0, false
		f.allocated = func(id string) (inventory.Allocation, error) {
			if id == original.String() {
				if asked++; asked >= 2 && !repeated {
					return c.later, c.err
				}
			}
			return was(id)
		}
		_, err := f.mover().Copy(t.Context(), original, nil, nil)
		require.ErrorIs(t, err, c.want, name)
		assert.Equal(t, markOf(original.String(), ""), f.contents(copied)[:markBytes], name)
		assert.NotContains(t, f.node, original.String(), "%s: nodes can attach the original again", name)
		repeated = true
		_, err = f.mover().Copy(t.Context(), original, nil, nil)
		require.NoError(t, err, name)
	}
}

// A brief outage of a storage server does not fail a move that is almost complete.
func TestLastAllocationQueryIsRetried(t *testing.T) {
	for _, failures := range []int{1, tries - 1, tries} {
		f, want := sparse(t)
		was, asked := f.allocated, 0
		f.allocated = func(id string) (inventory.Allocation, error) {
			if id == original.String() {
				if asked++; asked > 1 && asked <= 1+failures {
					return inventory.Allocation{}, errUnknown
				}
			}
			return was(id)
		}
		_, err := f.mover().Copy(t.Context(), original, nil, nil)
		if failures == tries {
			require.ErrorIs(t, err, errUnknown)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, want, f.contents(copied))
	}
}
