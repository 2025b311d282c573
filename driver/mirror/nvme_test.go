package mirror

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A fakeNamespace executes the ioctls of an NVMe namespace's block device. The requests and the
// offsets in the command are those of linux/fs.h and linux/nvme_ioctl.h.
type fakeNamespace struct {
	t       *testing.T
	block   uint32
	sectors uint16
	data    []byte
	log     []string // the executed commands
	// The command with the number failAt fails with this status and error.
	failAt int
	status uintptr
	err    error
}

func (f *fakeNamespace) ioctl(_ *os.File, request uintptr, arg unsafe.Pointer) (uintptr, error) {
	switch request {
	case 0x1267:
		*(*uint16)(arg) = f.sectors
		return 0, nil
	case 0x1268:
		*(*uint32)(arg) = f.block
		return 0, nil
	case 0x4e40:
		return 7, nil
	case 0xc0484e43: // the size in the request is 72
	default:
		f.t.Errorf("unknown request %#x", request)
		return 0, unix.ENOTTY
	}
	c := unsafe.Slice((*byte)(arg), 72)
	word := func(at int) uint32 { return *(*uint32)(unsafe.Pointer(&c[at])) }
	assert.EqualValues(f.t, 7, word(4), "the namespace")
	assert.EqualValues(f.t, 15*time.Second/time.Millisecond, word(64), "the time limit")
	opcode, length := c[0], word(36)
	f.log = append(f.log, []string{"flush", "write", "read"}[opcode])
	if len(f.log) == f.failAt {
		return f.status, f.err
	}
	if opcode == 0 {
		assert.Zero(f.t, length)
		return 0, nil
	}
	assert.LessOrEqual(f.t, length, uint32(f.sectors)*512)
	assert.LessOrEqual(f.t, length, uint32(64<<10))
	assert.Equal(f.t, length, (word(48)+1)*f.block, "the number of blocks, zero-based")
	address := *(*uintptr)(unsafe.Pointer(&c[24]))
	assert.Zero(f.t, address%4096)
	buffer := unsafe.Slice(*(**byte)(unsafe.Pointer(&c[24])), length)
	part := f.data[*(*uint64)(unsafe.Pointer(&c[40]))*uint64(f.block):][:length]
	if opcode == 1 {
		copy(part, buffer)
	} else {
		copy(buffer, part)
	}
	return 0, nil
}

func (f *fakeNamespace) open(t *testing.T) *namespaceDisk {
	t.Helper()
	path := filepath.Join(t.TempDir(), "device")
	require.NoError(t, os.WriteFile(path, f.data, 0o600))
	d, err := openNamespace(path, f.ioctl)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

func TestNamespaceIsReadAndWrittenByCommands(t *testing.T) {
	assert.EqualValues(t, 72, unsafe.Sizeof(passthruCommand{}))
	for _, block := range []uint32{512, 4096} {
		for _, sectors := range []uint16{8, 9, 128, 65535} {
			f := &fakeNamespace{t: t, block: block, sectors: sectors, data: make([]byte, 1<<20)}
			d := f.open(t)
			size, err := d.size()
			require.NoError(t, err)
			assert.EqualValues(t, 1<<20, size)
			number, err := d.number()
			require.NoError(t, err)
			assert.NotEmpty(t, number)

			want := bytes.Repeat([]byte("0123456789abcdef"), 200<<10/16)
			n, err := d.WriteAt(want, 16<<10)
			require.NoError(t, err)
			assert.Len(t, want, n)
			assert.Equal(t, want, f.data[16<<10:][:len(want)])
			assert.True(t, zero(f.data[:16<<10]) && zero(f.data[16<<10+len(want):][:4096]))
			require.Greater(t, len(f.log), 4)
			assert.Equal(t, "flush", f.log[len(f.log)-1])
			assert.NotContains(t, f.log[:len(f.log)-1], "flush")
			got := make([]byte, len(want))
			n, err = d.ReadAt(got, 16<<10)
			require.NoError(t, err)
			assert.Len(t, want, n)
			assert.Equal(t, want, got)
			_, err = d.ReadAt(got[:100], 0)
			require.ErrorContains(t, err, "whole blocks")
			_, err = d.ReadAt(got, 100)
			require.ErrorContains(t, err, "whole blocks")
		}
	}
}

// A lost connection and an error of the server differ: only the first one means that the replica is
// unreachable.
func TestFailedCommandsAreErrors(t *testing.T) {
	for name, test := range map[string]struct {
		status      uintptr
		err         error
		unreachable bool
	}{
		"no path":                {0, unix.EWOULDBLOCK, true},
		"canceled":               {0, unix.EINTR, true},
		"device removed":         {0, unix.ENODEV, true},
		"host path error":        {0x370, nil, true},
		"aborted by the host":    {0x371, nil, true},
		"invalid namespace":      {0x400b, nil, false},
		"unrecovered read error": {0x281, nil, false},
		"not an NVMe device":     {0, unix.ENOTTY, false},
		"refused":                {0, unix.EINVAL, false},
	} {
		for failAt := 1; failAt <= 3; failAt++ {
			f := &fakeNamespace{t: t, block: 4096, sectors: 8, data: make([]byte, 1<<20), failAt: failAt, status: test.status, err: test.err}
			d := f.open(t)
			_, err := d.WriteAt(make([]byte, 8192), 0)
			require.Error(t, err, name)
			assert.Equal(t, test.unreachable, errors.Is(err, ErrUnreachable), name)
			assert.Len(t, f.log, failAt, "no command follows a failed one")
		}
	}
	f := &fakeNamespace{t: t, block: 4096, sectors: 8, data: make([]byte, 1<<20), failAt: 2, status: 0x371}
	n, err := f.open(t).ReadAt(make([]byte, 8192), 0)
	require.ErrorIs(t, err, ErrUnreachable)
	assert.Equal(t, 4096, n)
}

func TestUnusableBlockSizesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	for _, f := range []*fakeNamespace{{block: 0, sectors: 8}, {block: 8192, sectors: 16}, {block: 520, sectors: 16}, {block: 512, sectors: 7}} {
		f.t = t
		_, err := openNamespace(path, f.ioctl)
		require.ErrorContains(t, err, "use blocks of 512 or 4096 bytes")
	}
}
