package mirror

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/replica"
)

// Later versions must be able to read replicas written by any earlier version.
func TestLayoutOfReplicasNeverChanges(t *testing.T) {
	assert.Equal(t, 4<<20, HeadBytes)
	assert.Equal(t, [2]int64{0, 262144}, superblockOffsets)
	assert.Equal(t, 524288, logOffset)
	assert.Equal(t, []int{8192, 7168, 2048, 29351936}, []int{headSectors, logSectors, regionSectors, maxRegions})
	s := superblock{replica.Superblock{Epoch: 0x0102, InSync: 3, Rebuild: replica.InFull}, "volume-1", 1, "uuid-b", 5 << 20, 1 << 20, 0x0304, 0x0506}
	got, err := s.encode()
	require.NoError(t, err)
	want := make([]byte, 4096)
	copy(want, "SPDKGate replica")
	little := binary.LittleEndian
	little.PutUint32(want[16:], 1)
	for at, value := range map[int]uint64{24: 0x0304, 32: 0x0102, 40: 5 << 20, 48: 1 << 20, 254: 0x0506} {
		little.PutUint64(want[at:], value)
	}
	copy(want[56:], []byte{1, 3, byte(replica.InFull), 8, 0, 6})
	copy(want[62:], "volume-1")
	copy(want[190:], "uuid-b")
	little.PutUint32(want[20:], crc32.Checksum(want, crc32.MakeTable(crc32.Castagnoli)))
	assert.Equal(t, want, got)
}

// Values up to the largest that this version can write are accepted; larger values are rejected.
func TestSuperblockValuesOutOfBoundsAreRejected(t *testing.T) {
	set64 := func(at int, value uint64) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], value) }
	}
	set := func(at int, value byte) func([]byte) { return func(b []byte) { b[at] = value } }
	for name, c := range map[string]struct {
		change func(block []byte)
		valid  bool
	}{
		"largest size": {set64(40, 1<<62), true}, "larger size": {set64(40, 1<<62+1), false},
		"largest region": {set64(48, 1<<62), true}, "larger region": {set64(48, 1<<62+1), false},
		"last id": {set(56, replica.MaxReplicas-1), true}, "no id": {set(56, replica.MaxReplicas), false},
		"all in sync": {set(57, 1<<replica.MaxReplicas-1), true}, "one more": {set(57, 1<<replica.MaxReplicas), false},
		"longest id": {set(59, 128), true}, "longer id": {set(59, 129), false},
		"longest UUID": {set(61, 64), true}, "longer UUID": {set(61, 65), false},
		"another version": {func(b []byte) { binary.LittleEndian.PutUint32(b[16:], 2) }, false},
	} {
		block, err := sample.encode()
		require.NoError(t, err)
		c.change(block)
		binary.LittleEndian.PutUint32(block[20:], checksum(block))
		_, err = decodeSuperblock(block)
		if c.valid {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, errDamaged, name)
		}
	}
	_, err := decodeSuperblock(make([]byte, 8))
	require.Error(t, err)
	long := sample
	long.Volume, long.UUID = strings.Repeat("x", 128), strings.Repeat("y", 64)
	_, err = long.encode()
	require.NoError(t, err)
	long.UUID += "y"
	_, err = long.encode()
	require.ErrorContains(t, err, "too long")
}

// A volume has at least one region, and no more regions than the log has bits.
func TestVolumeSizesOutOfBoundsAreRejected(t *testing.T) {
	w := newWorld(t)
	o := w.plugin().Options
	volume := func(change func(v *Volume)) error {
		v := Volume{ID: testID, Size: testSize, Writer: replica.Writer{Node: node, Generation: 1}, UUIDs: [3]string{"a", "b"}}
		change(&v)
		_, err := New(v, o)
		return err
	}
	for size, valid := range map[int64]bool{RegionBytes: true, RegionBytes - 4096: false, RegionBytes + 4096: true, RegionBytes + 4095: false, maxRegions * RegionBytes: true, maxRegions*RegionBytes + 4096: false} {
		err := volume(func(v *Volume) { v.Size = size })
		assert.Equal(t, valid, err == nil, "%d: %v", size, err)
	}
	require.NoError(t, volume(func(v *Volume) { v.ID = strings.Repeat("x", 80) }))
	require.ErrorIs(t, volume(func(v *Volume) { v.ID = strings.Repeat("x", 81) }), ErrInvalid)
	for _, change := range []func(o *Options){func(o *Options) { o.Find = nil }, func(o *Options) { o.Release = nil }} {
		o = w.plugin().Options
		change(&o)
		require.ErrorIs(t, volume(func(*Volume) {}), ErrInvalid)
	}
	o = w.plugin().Options
	o.Log = nil
	require.NoError(t, volume(func(*Volume) {}))
}

// The log has one bit for each region, which is set if the region is not marked, and ends with a
// whole block.
func TestLogHasABitForEachRegion(t *testing.T) {
	for regions, c := range map[int64]struct {
		bits   []byte
		length int
	}{1: {[]byte{1}, 4096}, 8: {[]byte{0xff}, 4096}, 9: {[]byte{0xff, 1}, 4096}, (4096 - 1024) * 8: {nil, 4096}, (4096-1024)*8 + 1: {nil, 8192}} {
		for format, marked := range map[logFormat]bool{clearMarks: false, setMarks: true} {
			log := logOf(regions*RegionBytes, format)
			require.Len(t, log, c.length)
			assert.Equal(t, uint32(0x4D695272), binary.LittleEndian.Uint32(log))
			assert.Equal(t, uint32(2), binary.LittleEndian.Uint32(log[4:]))
			assert.Equal(t, uint64(regions), binary.LittleEndian.Uint64(log[8:]))
			assert.True(t, zero(log[16:1024]))
			set := 0
			for _, b := range log[1024:] {
				for ; b != 0; b &= b - 1 {
					set++
				}
			}
			if marked {
				assert.Zero(t, set)
				continue
			}
			assert.EqualValues(t, regions, set)
			if c.bits != nil {
				assert.Equal(t, c.bits, log[1024:1024+len(c.bits)])
			}
		}
	}
	assert.EqualValues(t, 2, binary.LittleEndian.Uint64(logOf(RegionBytes+4096, setMarks)[8:]), "the last region is incomplete")
}

// The UUID of a new device, and the length, kind and parameters of a table, are at the offsets that
// the kernel expects.
func TestDeviceMapperPayloadsMatchTheKernelABI(t *testing.T) {
	k := newDMKernel(t.TempDir())
	require.NoError(t, os.WriteFile(k.dir+"/control", nil, 0o600))
	var sent dmIoctl
	k.ioctl = func(_ *os.File, _ uintptr, c *dmIoctl) error { sent = *c; return nil }
	require.NoError(t, k.create("m0", "uuid-1"))
	assert.Equal(t, "uuid-1", unix.ByteSliceToString(sent.uuid[:]))
	assert.Equal(t, [3]uint32{4, 0, 0}, sent.version)
	assert.EqualValues(t, 312, sent.dataStart, "the size of struct dm_ioctl")
	assert.EqualValues(t, 312+2048, sent.dataSize)
	require.NoError(t, k.load("m0", target{"mirror", 77, "core 2"}))
	assert.EqualValues(t, 1, sent.targetCount)
	assert.EqualValues(t, 0, binary.NativeEndian.Uint64(sent.data[:]))
	assert.EqualValues(t, 77, binary.NativeEndian.Uint64(sent.data[8:]))
	assert.Equal(t, "mirror", unix.ByteSliceToString(sent.data[24:40]))
	assert.Equal(t, "core 2", unix.ByteSliceToString(sent.data[40:]))
	require.NoError(t, k.load("m0", target{"mirror", 1, strings.Repeat("x", 2007)}))
	require.ErrorContains(t, k.load("m0", target{"mirror", 1, strings.Repeat("x", 2008)}), "too long")
}
