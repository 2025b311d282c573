package mirror

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spdkgate/spdkgate/driver/replica"
)

var sample = superblock{replica.Superblock{Epoch: 7, InSync: both, Rebuild: replica.InFull}, testID, 1, "uuid-b", testSize, RegionBytes, 5, 6}

func TestSuperblockIsReadBack(t *testing.T) {
	block, err := sample.encode()
	require.NoError(t, err)
	got, err := decodeSuperblock(block)
	require.NoError(t, err)
	assert.Equal(t, sample, got)
	for at := range 400 { // each field
		damaged := append([]byte(nil), block...)
		damaged[at] ^= 0x10
		_, err := decodeSuperblock(damaged)
		assert.Error(t, err, at)
	}
	long := sample
	long.Volume = string(make([]byte, 129))
	_, err = long.encode()
	assert.Error(t, err)
}

// A superblock with values that this version cannot have written is rejected, even if its checksum
// is valid.
func TestImpossibleSuperblocksAreRejected(t *testing.T) {
	for name, change := range map[string]func(s *superblock){
		"id":      func(s *superblock) { s.ID = replica.MaxReplicas },
		"no set":  func(s *superblock) { s.InSync = 0 },
		"set":     func(s *superblock) { s.InSync = 8 },
		"rebuild": func(s *superblock) { s.Rebuild = 3 },
	} {
		s := sample
		change(&s)
		block, err := s.encode()
		require.NoError(t, err)
		_, err = decodeSuperblock(block)
		assert.ErrorIs(t, err, errDamaged, name)
	}
}

// After an interrupted write, either the previous or the new superblock can be read.
func TestInterruptedWriteLeavesAValidSuperblock(t *testing.T) {
	for crash := range 3 { // the number of copies written before the crash
		for _, torn := range []bool{false, true} {
			w := newWorld(t)
			w.witness = replica.Witness{Created: true, InSync: setA, Held: both}
			d := w.disk(1)
			next := sample
			for range 3 {
				next.Sequence++
				require.NoError(t, writeSuperblock(d, next))
			}
			old := next
			next.Sequence, next.Epoch = next.Sequence+1, 8
			w.crashAt = len(w.steps) + 1 + crash
			err := writeSuperblock(d, next)
			if crash < 2 {
				require.ErrorIs(t, err, errCrash)
				if torn { // the interrupted copy
					d.put(superblockOffsets[1-crash]+30, 0xff)
				}
			}
			state, got, err := readHead(d)
			require.NoError(t, err)
			assert.Equal(t, replica.Ours, state)
			want := next
			if crash == 0 {
				want = old
			}
			assert.Equal(t, want, got, "crash %d torn %v", crash, torn)
		}
	}
}

func TestDamagedSuperblocksAreNotBlank(t *testing.T) {
	d := newWorld(t).disk(1)
	put(t, d, sample)
	d.put(40, 0xff)
	d.put(256<<10+40, 0xff)
	state, _, err := readHead(d)
	assert.Equal(t, replica.Unreadable, state)
	assert.ErrorIs(t, err, errDamaged)
}

func FuzzDecodeSuperblock(f *testing.F) {
	block, err := sample.encode()
	require.NoError(f, err)
	f.Add(block[:400])
	f.Fuzz(func(t *testing.T, head []byte) {
		block := make([]byte, superblockBytes)
		copy(block, head)
		if s, err := decodeSuperblock(block); err == nil {
			again, err := s.encode()
			require.NoError(t, err)
			got, err := decodeSuperblock(again)
			require.NoError(t, err)
			assert.Equal(t, s, got)
		}
	})
}
