package mirror

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOnlyBlockDevicesAreOpened(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, make([]byte, superblockBytes), 0o600))
	for _, write := range []bool{false, true} {
		_, err := blockDevices{}.open("/dev/null", write)
		require.Error(t, err)
		if _, err = (blockDevices{}).open(file, write); errors.Is(err, unix.EINVAL) {
			t.Skip("needs a file system with O_DIRECT: ", err)
		}
		require.ErrorContains(t, err, "is not a block device")
	}
	_, err := blockDevices{}.open(file+" missing", false)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = blockDevices{}.number(file + " missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	number, err := blockDevices{}.number("/dev/null")
	require.NoError(t, err)
	assert.Equal(t, "1:3", number)
}

// Callers may read and write a disk with any buffer, although direct I/O requires aligned buffers.
func TestDiskIsReadAndWrittenWithAnyBuffer(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "disk"), os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if err != nil {
		t.Skip("needs a file system with O_DIRECT: ", err)
	}
	d := directDisk{f}
	defer d.Close()
	require.NoError(t, f.Truncate(4*superblockBytes))
	size, err := d.size()
	require.NoError(t, err)
	assert.EqualValues(t, 4*superblockBytes, size)
	for skip := range 3 {
		want := bytes.Repeat([]byte{byte(skip + 1)}, superblockBytes+skip)[skip:]
		n, err := d.WriteAt(want, superblockBytes)
		require.NoError(t, err)
		assert.Equal(t, superblockBytes, n)
		got := make([]byte, superblockBytes+skip)[skip:]
		n, err = d.ReadAt(got, superblockBytes)
		require.NoError(t, err)
		assert.Equal(t, superblockBytes, n)
		assert.Equal(t, want, got)
	}
	_, err = d.ReadAt(make([]byte, superblockBytes), 4*superblockBytes)
	require.Error(t, err, "a read beyond the end")
	for range 100 {
		b := aligned(superblockBytes)
		assert.Len(t, b, superblockBytes)
		assert.Zero(t, uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4096)
	}
	null, err := os.Open("/dev/null")
	require.NoError(t, err)
	number, err := directDisk{null}.number()
	require.NoError(t, err)
	assert.Equal(t, "1:3", number)
	require.NoError(t, null.Close())
	_, err = directDisk{null}.number()
	require.Error(t, err, "the disk is closed")
}
