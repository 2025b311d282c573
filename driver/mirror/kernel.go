package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapping describes a device of the kernel's device mapper.
type mapping struct {
	uuid      string
	minor     uint32
	number    string // major:minor
	suspended bool
	// loaded means that a loaded table is waiting for a resume to activate it.
	loaded bool
	// active is the table in use. Its kind is empty if the device has no active table.
	active target
	status string
}

func (m mapping) path() string { return fmt.Sprintf("/dev/dm-%d", m.minor) }

// A kernel manages the device mapper's devices, by name. Tests replace it.
type kernel interface {
	// check fails with ErrUnsupported if the kernel does not support mirrors. It makes the kernel
	// load the modules if possible.
	check() error
	// find returns the device with this name, and false if there is none.
	find(name string) (mapping, bool, error)
	// create creates a device without a table.
	create(name, uuid string) error
	// load loads a table that the next resume activates. It replaces a previously loaded table.
	load(name string, t target) error
	// clear discards a table that was loaded but not activated.
	clear(name string) error
	// suspend holds new I/O, and waits for the I/O below the device. Writes that the mirror is
	// holding do not fail; they are repeated with the next table.
	suspend(name string) error
	// resume activates a loaded table, if there is one, and lets I/O continue.
	resume(name string) error
	// remove removes a device. It fails with ErrBusy if the device is in use.
	remove(name string) error
	// queueRead starts a read of the first block, and returns without waiting for its completion.
	// While the device is suspended, the read is queued behind all waiting I/O. wait returns when
	// the read is complete.
	queueRead(name string) (wait func(context.Context) error, err error)
}

// dmKernel accesses this node's device mapper through its ioctls (linux/dm-ioctl.h).
type dmKernel struct {
	dir   string // /dev/mapper
	ioctl func(control *os.File, request uintptr, c *dmIoctl) error
}

func newDMKernel(dir string) dmKernel {
	return dmKernel{dir, func(control *os.File, request uintptr, c *dmIoctl) (err error) {
		withoutSignals(func() { _, err = kernelIoctl(control, request, unsafe.Pointer(c)) })
		return err
	}}
}

// withoutSignals calls do while all signals to its thread are blocked, except SIGKILL. A signal
// would end the kernel's wait in a suspend. The kernel does not undo an interrupted suspend of a
// mirror, and the next suspend then waits forever (mirror_presuspend).
func withoutSignals(do func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	do()
}

// The commands and flags of linux/dm-ioctl.h.
const (
	dmCreate      = 3
	dmRemove      = 4
	dmSuspendCmd  = 6
	dmStatus      = 7
	dmLoad        = 9
	dmClear       = 10
	dmTableStatus = 12
	dmTarget      = 17 // DM_GET_TARGET_VERSION, since Linux 5.4

	dmSuspend     = 1 << 1
	dmStatusTable = 1 << 4
	dmActive      = 1 << 5
	dmInactive    = 1 << 6
	dmBufferFull  = 1 << 8
	dmSkipLockfs  = 1 << 10
	dmNoFlush     = 1 << 11
)

// dmIoctl is struct dm_ioctl, followed by space for a table.
type dmIoctl struct {
	version             [3]uint32
	dataSize, dataStart uint32
	targetCount         uint32
	openCount           int32
	flags, eventNr, _   uint32
	dev                 uint64
	name                [128]byte
	uuid                [129]byte
	_                   [7]byte
	data                [2048]byte
}

// dmSpecBytes is the size of struct dm_target_spec: start, length, status, next, and the kind.
const (
	dmHeader    = unsafe.Offsetof(dmIoctl{}.data)
	dmSpecBytes = 40
)

func (k dmKernel) call(command uintptr, name string, flags uint32, prepare func(*dmIoctl)) (*dmIoctl, error) {
	control, err := os.OpenFile(filepath.Join(k.dir, "control"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	// _IOWR(DM_IOCTL, command, struct dm_ioctl)
	request := uintptr(3<<30|0xfd<<8) | dmHeader<<16 | command
	c := &dmIoctl{version: [3]uint32{4, 0, 0}, dataSize: uint32(unsafe.Sizeof(dmIoctl{})), dataStart: uint32(dmHeader), flags: flags}
	if copy(c.name[:len(c.name)-1], name) != len(name) {
		return nil, fmt.Errorf("%w: the name %q is too long for a device", ErrInvalid, name)
	}
	if prepare != nil {
		prepare(c)
	}
	if err := k.ioctl(control, request, c); err != nil {
		return nil, err
	}
	if c.flags&dmBufferFull != 0 {
		return nil, fmt.Errorf("the kernel's response about %s is longer than expected", name)
	}
	return c, nil
}

func (k dmKernel) check() error {
	for _, kind := range []string{"mirror", "linear", "error"} {
		if _, err := k.call(dmTarget, kind, 0, nil); err != nil && !errors.Is(err, unix.ENOTTY) {
			return fmt.Errorf("%w: this node's kernel has no device-mapper target %s (%w): load the module dm_mirror on the node. Nothing was started", ErrUnsupported, kind, err)
		}
	}
	return nil
}

func (k dmKernel) find(name string) (mapping, bool, error) {
	fail := func(err error) (mapping, bool, error) {
		return mapping{}, false, fmt.Errorf("look up the device %s in the kernel: %w", name, err)
	}
	c, err := k.call(dmTableStatus, name, dmStatusTable, nil)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, fs.ErrNotExist):
		return mapping{}, false, nil // no such device, or no device mapper in the kernel
	case err != nil:
		return fail(err)
	}
	uuid, _, _ := bytes.Cut(c.uuid[:], []byte{0})
	m := mapping{
		uuid: string(uuid), minor: unix.Minor(c.dev), number: fmt.Sprintf("%d:%d", unix.Major(c.dev), unix.Minor(c.dev)),
		suspended: c.flags&dmSuspend != 0, loaded: c.flags&dmInactive != 0,
	}
	if c.flags&dmActive == 0 {
		return m, true, nil
	}
	if m.active, err = firstTarget(c); err != nil {
		return fail(err)
	}
	if c, err = k.call(dmTableStatus, name, 0, nil); err != nil {
		return fail(err)
	}
	status, err := firstTarget(c)
	if err != nil {
		return fail(err)
	}
	m.status = status.params
	return m, true, nil
}

// firstTarget returns the only target in the kernel's response.
func firstTarget(c *dmIoctl) (target, error) {
	if c.targetCount != 1 {
		return target{}, fmt.Errorf("%w: it has %d lines", errTable, c.targetCount)
	}
	at := uintptr(c.dataStart)
	if at < dmHeader || at-dmHeader > uintptr(len(c.data))-dmSpecBytes {
		return target{}, errors.New("the kernel's response has an unknown layout")
	}
	spec := c.data[at-dmHeader:]
	if start := binary.NativeEndian.Uint64(spec); start != 0 {
		return target{}, fmt.Errorf("%w: it begins at sector %d", errTable, start)
	}
	kind, _, _ := bytes.Cut(spec[24:dmSpecBytes], []byte{0})
	params, _, _ := bytes.Cut(spec[dmSpecBytes:], []byte{0})
	return target{string(kind), binary.NativeEndian.Uint64(spec[8:]), string(params)}, nil
}

func (k dmKernel) create(name, uuid string) error {
	_, err := k.call(dmCreate, name, 0, func(c *dmIoctl) { copy(c.uuid[:len(c.uuid)-1], uuid) })
	if err != nil {
		return fmt.Errorf("create the device %s: %w", name, err)
	}
	return nil
}

func (k dmKernel) load(name string, t target) error {
	if dmSpecBytes+len(t.params) >= len(dmIoctl{}.data) {
		return fmt.Errorf("load a table into %s: it is too long", name)
	}
	_, err := k.call(dmLoad, name, 0, func(c *dmIoctl) {
		c.targetCount = 1
		binary.NativeEndian.PutUint64(c.data[8:], t.length)
		copy(c.data[24:dmSpecBytes-1], t.kind)
		copy(c.data[dmSpecBytes:], t.params)
	})
	if err != nil {
		return fmt.Errorf("load the table %q into the device %s: %w", t.kind+" "+t.params, name, err)
	}
	return nil
}

func (k dmKernel) clear(name string) error {
	if _, err := k.call(dmClear, name, 0, nil); err != nil {
		return fmt.Errorf("clear the loaded table of the device %s: %w", name, err)
	}
	return nil
}

func (k dmKernel) suspend(name string) error {
	// Do not freeze the file system, because that would wait for the writes that the mirror holds.
	if _, err := k.call(dmSuspendCmd, name, dmSuspend|dmNoFlush|dmSkipLockfs, nil); err != nil {
		return fmt.Errorf("suspend the device %s: %w", name, err)
	}
	return nil
}

func (k dmKernel) resume(name string) error {
	// If the device is not suspended, the kernel suspends it during the resume to activate the
	// table. The flags apply to that suspend.
	if _, err := k.call(dmSuspendCmd, name, dmNoFlush|dmSkipLockfs, nil); err != nil {
		return fmt.Errorf("resume the device %s: %w", name, err)
	}
	return nil
}

func (k dmKernel) remove(name string) error {
	_, err := k.call(dmRemove, name, 0, nil)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: the device %s is mounted or held open on this node: find its users with lsof", ErrBusy, name)
	case err != nil && !errors.Is(err, unix.ENXIO):
		return fmt.Errorf("remove the device %s: %w", name, err)
	}
	return nil
}

func (k dmKernel) queueRead(name string) (func(context.Context) error, error) {
	c, err := k.call(dmStatus, name, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("look up the device %s in the kernel: %w", name, err)
	}
	return queueRead(fmt.Sprintf("/dev/dm-%d", unix.Minor(c.dev)))
}
