package luks

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fakeKernel handles device mapper requests. A request fails if fail contains an error for it.
type fakeKernel struct {
	t      *testing.T
	fail   map[uintptr]error
	answer map[uintptr]func(c *dmIoctl)
	asked  []uintptr
}

// The values of the requests in linux/dm-ioctl.h.
const (
	askRemove = 0xc138fd04
	askResume = 0xc138fd06
	askStatus = 0xc138fd07
	askDeps   = 0xc138fd0b
	askTarget = 0xc138fd11
)

func newFakeKernel(t *testing.T) (dmKernel, *fakeKernel) {
	k := newDMKernel(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "control"), nil, 0o600))
	f := &fakeKernel{t: t, fail: map[uintptr]error{}, answer: map[uintptr]func(*dmIoctl){}}
	k.ioctl = func(_ *os.File, request uintptr, c *dmIoctl) error {
		f.asked = append(f.asked, request)
		assert.Equal(t, [3]uint32{4, 0, 0}, c.version)
		assert.EqualValues(t, 312, c.dataStart, "the size of struct dm_ioctl")
		assert.EqualValues(t, 312+1024, c.dataSize)
		if answer := f.answer[request]; answer != nil {
			answer(c)
		}
		return f.fail[request]
	}
	return k, f
}

// below responds with the devices below a mapping, at an offset that the kernel chooses.
func below(at uint32, devices ...uint64) func(c *dmIoctl) {
	return func(c *dmIoctl) {
		c.dataStart = at
		answer := c.data[at-312:]
		binary.NativeEndian.PutUint32(answer, uint32(len(devices)))
		for i, d := range devices {
			binary.NativeEndian.PutUint64(answer[8+8*i:], d)
		}
	}
}

func TestMappingStatesAreRead(t *testing.T) {
	const active = 1 << 5
	for name, c := range map[string]struct {
		flags uint32
		open  int32
		deps  func(*dmIoctl)
		want  mapping
	}{
		"unused":                {active, 0, below(312, unix.Mkdev(259, 300)), mapping{below: "259:300"}},
		"in use":                {active, 1, below(312, unix.Mkdev(8, 1)), mapping{below: "8:1", inUse: true}},
		"read-only":             {active | 1, 0, below(312, unix.Mkdev(8, 1)), mapping{below: "8:1", readOnly: true}},
		"suspended":             {active | 2, 0, below(312, unix.Mkdev(8, 1)), mapping{below: "8:1", suspended: true}},
		"moved answer":          {active, 0, below(320, unix.Mkdev(8, 1)), mapping{below: "8:1"}},
		"last place":            {active, 0, below(312+1024-16, unix.Mkdev(8, 1)), mapping{below: "8:1"}},
		"two devices":           {active, 0, below(312, unix.Mkdev(8, 1), unix.Mkdev(8, 2)), mapping{}},
		"no device":             {active, 0, below(312), mapping{}},
		"without a table":       {0, 0, below(312, unix.Mkdev(8, 1)), mapping{}},
		"response out of range": {active, 0, func(c *dmIoctl) { c.dataStart = 312 + 1024 - 15 }, mapping{}},
		"response before data":  {active, 0, func(c *dmIoctl) { c.dataStart = 8 }, mapping{}},
	} {
		k, f := newFakeKernel(t)
		f.answer[askStatus] = func(d *dmIoctl) {
			assert.Equal(t, "vol", strings.TrimRight(string(d.name[:]), "\x00"))
			copy(d.uuid[:], "CRYPT-LUKS2-x")
			d.dev, d.flags, d.openCount = unix.Mkdev(253, 7), c.flags, c.open
		}
		f.answer[askDeps] = c.deps
		m, found, err := k.find("vol")
		require.NoError(t, err, name)
		assert.True(t, found, name)
		c.want.uuid, c.want.minor = "CRYPT-LUKS2-x", 7
		assert.Equal(t, c.want, m, name)
		assert.Equal(t, "/dev/dm-7", m.path())
		assert.True(t, m.ours())
	}
}

func TestUnreadableMappingsAreReported(t *testing.T) {
	for _, missing := range []error{unix.ENXIO, unix.ENODEV, unix.ENOENT} {
		k, f := newFakeKernel(t)
		f.fail[askStatus] = missing
		_, found, err := k.find("vol")
		require.NoError(t, err)
		assert.False(t, found, missing)
	}
	k, f := newFakeKernel(t)
	f.fail[askStatus] = unix.EPERM
	_, _, err := k.find("vol")
	require.ErrorIs(t, err, unix.EPERM)
	k, f = newFakeKernel(t)
	f.answer[askStatus] = func(c *dmIoctl) { c.flags = 1 << 5 }
	f.fail[askDeps] = unix.EIO
	_, _, err = k.find("vol")
	require.ErrorIs(t, err, unix.EIO)

	k, f = newFakeKernel(t)
	_, _, err = k.find(strings.Repeat("x", 128))
	require.ErrorIs(t, err, ErrInvalid)
	assert.Empty(t, f.asked, "the name would be cut to another one")
	_, _, err = k.find(strings.Repeat("x", 127))
	require.NoError(t, err)
}

func TestMappingRequestErrorsAreConverted(t *testing.T) {
	k, f := newFakeKernel(t)
	require.NoError(t, k.check())
	require.NoError(t, k.resume("vol"))
	assert.Equal(t, []uintptr{askTarget, askResume}, f.asked)
	f.fail[askTarget] = unix.ENOTTY
	require.NoError(t, k.check(), "the kernel does not support the request")
	f.fail[askTarget] = unix.EINVAL
	require.ErrorIs(t, k.check(), ErrUnsupported)
	f.fail[askResume] = unix.EIO
	require.ErrorIs(t, k.resume("vol"), unix.EIO)

	node := filepath.Join(k.dir, "vol")
	for failure, want := range map[error]error{unix.EBUSY: ErrBusy, unix.EPERM: unix.EPERM} {
		require.NoError(t, os.WriteFile(node, nil, 0o600))
		f.fail[askRemove] = failure
		require.ErrorIs(t, k.remove("vol"), want)
		assert.FileExists(t, node)
	}
	for _, gone := range []error{nil, unix.ENXIO} {
		require.NoError(t, os.WriteFile(node, nil, 0o600))
		f.fail[askRemove] = gone
		require.NoError(t, k.remove("vol"))
		assert.NoFileExists(t, node)
		require.NoError(t, k.remove("vol"), "udev has removed the node")
	}
	require.NoError(t, os.MkdirAll(filepath.Join(node, "x"), 0o700))
	require.ErrorContains(t, k.remove("vol"), "remove the node of a closed device")
}
