package mount

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mark is written only to a device that is at least four times as large as the mark's distance
// from the end.
func TestMarkOffsetsDependOnTheSize(t *testing.T) {
	const kib = 1 << 10
	for size, want := range map[int64][]int64{
		0: nil, mib - 1: nil, mib: {mib - 256*kib}, mib + 4095: {mib - 256*kib}, 13*mib - 1: {13*mib - 256*kib - 4096},
		13 * mib: {13*mib - 256*kib, 10*mib - 256*kib}, 13*mib + 5000: {13*mib - 256*kib + 4096, 10*mib - 256*kib + 4096},
	} {
		assert.Equal(t, want, markOffsets(size), size)
	}
}

// If a mark cannot be read, the call fails instead of reporting that the mark is present or absent.
func TestUnreadableMarkIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, make([]byte, mib), 0o600))
	d, err := os.Open(path)
	require.NoError(t, err)
	defer d.Close()
	marked, err := formattingMarked(d, mib)
	require.NoError(t, err)
	assert.False(t, marked)
	marked, err = formattingMarked(d, 13*mib)
	require.ErrorIs(t, err, ErrUnreadable)
	assert.False(t, marked)
	require.ErrorIs(t, markFormatting(filepath.Join(t.TempDir(), "missing"), true), ErrUnreadable)
	require.Error(t, markFormatting(os.DevNull+"/x", true))
}

func TestUnusedFilesystemsAreRecognized(t *testing.T) {
	ext4Start := func(change func(superblock []byte)) []byte {
		start := make([]byte, 2048)
		change(start[1024:])
		return start
	}
	assert.True(t, neverMounted(ext4Start(func([]byte) {})))
	assert.False(t, neverMounted(make([]byte, 2047)), "the superblock was not read")
	assert.False(t, neverMounted(ext4Start(func(sb []byte) { sb[44] = 1 })))
	assert.False(t, neverMounted(ext4Start(func(sb []byte) { sb[47] = 1 })))
	assert.False(t, neverMounted(ext4Start(func(sb []byte) { sb[52] = 1 })))
	assert.True(t, neverMounted(ext4Start(func(sb []byte) { sb[43], sb[48], sb[51], sb[54] = 1, 1, 1, 1 })))
	xfsStart := append([]byte("XFSB"), make([]byte, 123)...)
	xfsStart[126] = 1
	assert.True(t, unfinishedXFS(xfsStart))
	assert.False(t, unfinishedXFS(xfsStart[:126]))
	xfsStart[126] = 0
	assert.False(t, unfinishedXFS(xfsStart))
	xfsStart[0], xfsStart[126] = 'Y', 1
	assert.False(t, unfinishedXFS(xfsStart))
}

// The size of an ext4 file system is the number of its blocks times the block size. The high half
// of the number is valid only with the feature 64bit.
func TestExt4SizeIsReadFromTheSuperblock(t *testing.T) {
	for name, c := range map[string]struct {
		feature, low, high, log uint32
		want                    int64
	}{
		"1 KiB blocks":          {0, 5, 0, 0, 5 << 10},
		"4 KiB blocks":          {0, 5, 7, 2, 5 << 12},
		"64bit":                 {0x80, 5, 1, 2, (1<<32 + 5) << 12},
		"64bit, another one":    {0x80 | 0x40, 0, 2, 2, 2 << 44},
		"another feature alone": {0x40, 5, 1, 2, 5 << 12},
	} {
		start := make([]byte, 2048)
		sb := start[1024:]
		binary.LittleEndian.PutUint16(sb[56:], 0xef53)
		for at, value := range map[int]uint32{96: c.feature, 4: c.low, 336: c.high, 24: c.log} {
			binary.LittleEndian.PutUint32(sb[at:], value)
		}
		path := filepath.Join(t.TempDir(), "disk")
		require.NoError(t, os.WriteFile(path, start, 0o600))
		size, err := ext4Size(path)
		require.NoError(t, err)
		assert.Equal(t, c.want, size, name)
		require.NoError(t, os.Truncate(path, 2047))
		size, err = ext4Size(path)
		require.Error(t, err)
		assert.Zero(t, size)
	}
}

// A path that is mounted again after each unmount is unmounted 64 times.
func TestEndlessMountsAreReported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stage")
	m, _ := fakeMounts(t, line("259:1", "/", path, "rw", "xfs", "/dev/nvme0n1", "rw"))
	n := 0
	m.umount = func(string) error { n++; return nil }
	require.ErrorIs(t, m.Unmount(t.Context(), path), ErrBusy)
	assert.Equal(t, 64, n)
}

// If Contents cannot read a device, it returns only the error.
func TestContentsOfUnreadableDevicesAreUnknown(t *testing.T) {
	m := testMounter(t, Options{})
	for _, device := range []string{filepath.Join(t.TempDir(), "missing"), os.DevNull} {
		signature, dataAt, marked, err := m.Contents(t.Context(), device, true)
		require.Error(t, err)
		assert.Empty(t, signature)
		assert.Zero(t, dataAt)
		assert.False(t, marked)
	}
}
