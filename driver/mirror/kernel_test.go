package mirror

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// response returns the kernel's response about a device with one table line.
func response(length uint64, kind, params string) *dmIoctl {
	c := &dmIoctl{targetCount: 1, dataStart: uint32(dmHeader)}
	binary.NativeEndian.PutUint64(c.data[8:], length)
	copy(c.data[24:], kind)
	copy(c.data[dmSpecBytes:], params)
	return c
}

func TestFirstTargetDecodesKernelResponse(t *testing.T) {
	got, err := firstTarget(response(2048, "mirror", "core 2 2048"))
	require.NoError(t, err)
	assert.Equal(t, target{"mirror", 2048, "core 2 2048"}, got)

	last := response(0, "", "")
	last.dataStart += uint32(len(last.data)) - dmSpecBytes
	_, err = firstTarget(last)
	require.NoError(t, err, "the line ends where the response ends")

	for name, damage := range map[string]func(*dmIoctl){
		"no line":       func(c *dmIoctl) { c.targetCount = 0 },
		"two lines":     func(c *dmIoctl) { c.targetCount = 2 },
		"early start":   func(c *dmIoctl) { c.dataStart-- },
		"late start":    func(c *dmIoctl) { c.dataStart += uint32(len(c.data)) - dmSpecBytes + 1 },
		"wrong sectors": func(c *dmIoctl) { c.data[0] = 1 },
	} {
		c := response(2048, "mirror", "core 2 2048")
		damage(c)
		_, err := firstTarget(c)
		assert.Error(t, err, name)
	}
}

// The test reads a file, which is read in the same way as a device.
func TestQueuedReadCompletes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	require.NoError(t, os.WriteFile(path, make([]byte, superblockBytes), 0o600))
	wait, err := queueRead(path)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skip("needs a file system with O_DIRECT, and asynchronous I/O: ", err)
	}
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- wait(t.Context()) }()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(50 * time.Second):
		t.Fatal("the read does not end")
	}
	_, err = queueRead(path + " missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Each call sends the request and the flags that linux/dm-ioctl.h defines.
func TestDeviceMapperRequestsMatchTheKernelABI(t *testing.T) {
	k := newDMKernel(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "control"), nil, 0o600))
	var requests []uintptr
	var flags uint32
	var fail []error
	k.ioctl = func(_ *os.File, request uintptr, c *dmIoctl) error {
		requests, flags = append(requests, request), c.flags
		assert.Equal(t, "m0", unix.ByteSliceToString(c.name[:]))
		if len(fail) == 0 {
			return nil
		}
		err := fail[0]
		fail = fail[1:]
		return err
	}
	const noFlush, skipLockFS, suspend = 1 << 11, 1 << 10, 1 << 1
	for name, test := range map[string]struct {
		call    func() error
		request uintptr
		flags   uint32
	}{
		"create":  {func() error { return k.create("m0", "uuid") }, 0xc138fd03, 0},
		"remove":  {func() error { return k.remove("m0") }, 0xc138fd04, 0},
		"suspend": {func() error { return k.suspend("m0") }, 0xc138fd06, suspend | noFlush | skipLockFS},
		"resume":  {func() error { return k.resume("m0") }, 0xc138fd06, noFlush | skipLockFS},
		"load":    {func() error { return k.load("m0", target{"mirror", 8, "core"}) }, 0xc138fd09, 0},
		"clear":   {func() error { return k.clear("m0") }, 0xc138fd0a, 0},
	} {
		requests, fail = nil, nil
		require.NoError(t, test.call(), name)
		assert.Equal(t, []uintptr{test.request}, requests, name)
		assert.Equal(t, test.flags, flags, name)
		fail = []error{unix.EIO}
		require.ErrorIs(t, test.call(), unix.EIO, name)
	}
	fail = []error{unix.ENXIO, unix.EBUSY}
	require.NoError(t, k.remove("m0"), "it is already removed")
	require.ErrorIs(t, k.remove("m0"), ErrBusy)
}

// A mirror cannot be suspended again after a signal has interrupted a suspend.
func TestSignalsAreBlockedDuringSuspend(t *testing.T) {
	blocked := func() uint64 {
		text, err := os.ReadFile("/proc/thread-self/status")
		require.NoError(t, err)
		_, rest, _ := strings.Cut(string(text), "SigBlk:\t")
		line, _, _ := strings.Cut(rest, "\n")
		mask, err := strconv.ParseUint(line, 16, 64)
		require.NoError(t, err)
		return mask
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := blocked()
	withoutSignals(func() {
		for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGCHLD, unix.SIGURG} {
			assert.NotZero(t, blocked()&(1<<(signal-1)), signal)
		}
	})
	assert.Equal(t, before, blocked())
}

// newFakeKernel returns a kernel with these responses, one for each call.
func newFakeKernel(t *testing.T, responses ...any) dmKernel {
	k := newDMKernel(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, "control"), nil, 0o600))
	k.ioctl = func(_ *os.File, request uintptr, c *dmIoctl) error {
		if !assert.NotEmpty(t, responses, "an unexpected call") {
			return unix.EINVAL
		}
		next := responses[0]
		responses = responses[1:]
		switch next := next.(type) {
		case error:
			return next
		case *dmIoctl:
			// The call that queries the table sets the flag; the call that queries the status does
			// not.
			assert.EqualValues(t, 0xc138fd0c, request)
			assert.Equal(t, next.flags&dmStatusTable, c.flags)
			*c = *next
		}
		return nil
	}
	return k
}

// described returns the kernel's response about a device. The flags are those of linux/dm-ioctl.h.
func described(flags uint32, kind, params string) *dmIoctl {
	c := response(2048, kind, params)
	c.flags, c.dev = flags, unix.Mkdev(253, 7)
	copy(c.uuid[:], uuidPrefix+"1-v")
	return c
}

func TestDevicesAreLookedUp(t *testing.T) {
	const suspended, table, active, loaded, bufferFull = 1 << 1, 1 << 4, 1 << 5, 1 << 6, 1 << 8
	want := mapping{uuid: uuidPrefix + "1-v", minor: 7, number: "253:7", active: target{"mirror", 2048, "core 2"}, status: "2 A"}
	status := described(active, "mirror", "2 A")
	for flags, change := range map[uint32]func(m *mapping){
		active:             func(*mapping) {},
		active | suspended: func(m *mapping) { m.suspended = true },
		active | loaded:    func(m *mapping) { m.loaded = true },
		loaded:             func(m *mapping) { m.active, m.status, m.loaded = target{}, "", true },
	} {
		m := want
		change(&m)
		got, found, err := newFakeKernel(t, described(flags|table, "mirror", "core 2"), status).find("m0")
		require.NoError(t, err)
		assert.True(t, found)
		assert.Equal(t, m, got)
	}
	for _, missing := range []error{unix.ENXIO, unix.ENODEV, os.ErrNotExist} {
		_, found, err := newFakeKernel(t, missing).find("m0")
		require.NoError(t, err)
		assert.False(t, found, missing)
	}
	two := described(active|table, "mirror", "core 2")
	two.targetCount = 2
	noStatus := described(active, "mirror", "2 A")
	noStatus.targetCount = 0
	for name, responses := range map[string][]any{
		"no table":     {unix.EIO},
		"two lines":    {two},
		"no status":    {described(active|table, "mirror", "core 2"), unix.EIO},
		"empty status": {described(active|table, "mirror", "core 2"), noStatus},
		"too long":     {described(active|table|bufferFull, "mirror", "core 2")},
	} {
		_, _, err := newFakeKernel(t, responses...).find("m0")
		assert.ErrorContains(t, err, "look up the device m0", name)
	}
	_, _, err := newFakeKernel(t).find(string(bytes.Repeat([]byte("n"), 128)))
	require.ErrorIs(t, err, ErrInvalid)
	_, err = newFakeKernel(t, unix.EIO).queueRead("m0")
	require.ErrorIs(t, err, unix.EIO)
}

// Kernels before Linux 5.4 cannot report their targets, so they are not refused.
func TestKernelWithoutMirrorsIsRefused(t *testing.T) {
	require.NoError(t, newFakeKernel(t, unix.ENOTTY, unix.ENOTTY, unix.ENOTTY).check())
	err := newFakeKernel(t, nil, nil, unix.ENXIO).check()
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "target error")
	_, err = newDMKernel(t.TempDir()).call(dmStatus, "m0", 0, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
