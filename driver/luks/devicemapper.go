package luks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A mapping describes an open device in the kernel.
type mapping struct {
	uuid      string // begins with CRYPT-LUKS2- if cryptsetup opened a LUKS2 device
	minor     uint32
	below     string // number of the encrypted device, major:minor; empty if there is not exactly one
	readOnly  bool
	suspended bool
	inUse     bool
}

func (m mapping) path() string { return fmt.Sprintf("/dev/dm-%d", m.minor) }

// ours reports whether cryptsetup created the mapping for a LUKS2 device.
func (m mapping) ours() bool { return strings.HasPrefix(m.uuid, "CRYPT-LUKS2-") }

// A deviceMapper manages the kernel's mappings, by name. Tests replace it.
type deviceMapper interface {
	// check fails with ErrUnsupported if the kernel cannot encrypt devices. It makes the kernel
	// load the required modules if possible.
	check() error
	// find returns the mapping with this name, and false if there is none.
	find(name string) (mapping, bool, error)
	// resume resumes the I/O of a suspended mapping.
	resume(name string) error
	// remove removes a mapping. It fails with ErrBusy if the mapping is in use.
	remove(name string) error
}

// dmKernel accesses this node's device mapper through its ioctls (linux/dm-ioctl.h). Unlike the
// output of a program, the results of ioctls do not depend on a version. Moreover, ioctls do not
// read the encrypted device, which may hang.
type dmKernel struct {
	dir   string                                                             // /dev/mapper
	ioctl func(control *os.File, request uintptr, c *dmIoctl) (failed error) // replaced by tests
}

func newDMKernel(dir string) dmKernel {
	return dmKernel{dir, func(control *os.File, request uintptr, c *dmIoctl) error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), request, uintptr(unsafe.Pointer(c))); errno != 0 {
			return errno
		}
		return nil
	}}
}

const (
	dmRemove = 4
	dmResume = 6 // DM_DEV_SUSPEND without the flag to suspend
	dmStatus = 7
	dmDeps   = 11
	dmTarget = 17 // DM_GET_TARGET_VERSION, since Linux 5.4

	dmReadOnly = 1 << 0
	dmSuspend  = 1 << 1
	dmActive   = 1 << 5
)

// dmIoctl is struct dm_ioctl, followed by space for the response.
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
	data                [1024]byte
}

const dmHeader = unsafe.Offsetof(dmIoctl{}.data)

func (k dmKernel) call(command uintptr, name string) (*dmIoctl, error) {
	control, err := os.OpenFile(filepath.Join(k.dir, "control"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	c := &dmIoctl{version: [3]uint32{4, 0, 0}, dataSize: uint32(unsafe.Sizeof(dmIoctl{})), dataStart: uint32(dmHeader)}
	if len(name) >= len(c.name) {
		return nil, fmt.Errorf("%w: the name %q is too long for a mapping", ErrInvalid, name)
	}
	copy(c.name[:], name)
	// _IOWR(DM_IOCTL, command, struct dm_ioctl)
	request := uintptr(3<<30|0xfd<<8) | dmHeader<<16 | command
	return c, k.ioctl(control, request, c)
}

func (k dmKernel) check() error {
	if _, err := k.call(dmTarget, "crypt"); err != nil && !errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("%w: the kernel cannot encrypt devices (%w): load the module dm_crypt on the node", ErrUnsupported, err)
	}
	return nil
}

func (k dmKernel) find(name string) (mapping, bool, error) {
	c, err := k.call(dmStatus, name)
	switch {
	case errors.Is(err, unix.ENXIO), errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		return mapping{}, false, nil // no such mapping, or no device mapper in the kernel
	case err != nil:
		return mapping{}, false, fmt.Errorf("query the kernel for the mapping %s: %w", name, err)
	}
	uuid, _, _ := bytes.Cut(c.uuid[:], []byte{0})
	m := mapping{
		uuid: string(uuid), minor: unix.Minor(c.dev), readOnly: c.flags&dmReadOnly != 0,
		suspended: c.flags&dmSuspend != 0, inUse: c.openCount > 0,
	}
	if c.flags&dmActive == 0 {
		return m, true, nil
	}
	if c, err = k.call(dmDeps, name); err != nil {
		return m, true, fmt.Errorf("query the kernel for the device below %s: %w", name, err)
	}
	// struct dm_target_deps holds the count, four bytes of padding, and the device numbers.
	answer := c.data[:]
	if at := uintptr(c.dataStart); at >= dmHeader && at-dmHeader <= uintptr(len(answer))-16 {
		answer = answer[at-dmHeader:]
	}
	if binary.NativeEndian.Uint32(answer) == 1 {
		dev := binary.NativeEndian.Uint64(answer[8:])
		m.below = fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	}
	return m, true, nil
}

func (k dmKernel) resume(name string) error {
	if _, err := k.call(dmResume, name); err != nil {
		return fmt.Errorf("resume the mapping %s: %w", name, err)
	}
	return nil
}

func (k dmKernel) remove(name string) error {
	_, err := k.call(dmRemove, name)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: the mapping %s is mounted or held open on this node: find its users with lsof", ErrBusy, name)
	case err != nil && !errors.Is(err, unix.ENXIO):
		return fmt.Errorf("remove the mapping %s: %w", name, err)
	}
	// Without udev, nothing else removes the device node that cryptsetup created.
	if err := os.Remove(filepath.Join(k.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the node of a closed device: %w", err)
	}
	return nil
}
