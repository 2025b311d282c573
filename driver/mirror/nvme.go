package mirror

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaceDisk is the block device of an NVMe namespace. It reads and writes the namespace with
// NVMe commands, which the kernel never repeats: while no path is live, a command fails at once,
// and a command in flight fails when its connection is lost or after commandTimeout. In contrast,
// read(2) and write(2) would wait until the server returns.
//
// A failed write may still have been executed, or be executed later.
type namespaceDisk struct {
	file  *os.File
	ioctl ioctl
	// nsid is the namespace's number, and blockBytes is the size of its blocks.
	nsid, blockBytes uint32
	// maxBytes is the largest size of a transfer.
	maxBytes int
}

// ioctl calls the kernel. It returns the result, which may be the status of an NVMe command.
type ioctl func(f *os.File, request uintptr, arg unsafe.Pointer) (uintptr, error)

func kernelIoctl(f *os.File, request uintptr, arg unsafe.Pointer) (uintptr, error) {
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
	if errno != 0 {
		return 0, errno
	}
	return result, nil
}

// The requests of linux/fs.h and linux/nvme_ioctl.h, and the opcodes of the NVM command set.
const (
	blkSectGet = 0x1267     // BLKSECTGET
	blkSSZGet  = 0x1268     // BLKSSZGET
	nvmeID     = 0x4e40     // NVME_IOCTL_ID
	nvmeIO     = 0xc0484e43 // NVME_IOCTL_IO_CMD

	nvmeFlush = 0
	nvmeWrite = 1
	nvmeRead  = 2
)

// commandTimeout is longer than any command takes on a busy server, and shorter than a step of the
// healer. When it expires, the kernel resets the connection.
const commandTimeout = 15 * time.Second

// maxTransfer is the largest transfer that every target supports.
const maxTransfer = 64 << 10

// passthruCommand is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type passthruCommand struct {
	opcode, _    uint8
	_            uint16
	nsid         uint32
	_            [2]uint32
	_, address   uint64
	_, length    uint32
	start        uint64 // cdw10 and cdw11
	blocks       uint32 // cdw12, zero-based
	_            [3]uint32
	timeoutMS, _ uint32
}

// openNamespace opens the block device of an NVMe namespace. Commands need CAP_SYS_ADMIN, but not a
// device that is open for writing, which udev would probe.
func openNamespace(path string, call ioctl) (_ *namespaceDisk, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	d := &namespaceDisk{file: f, ioctl: call, maxBytes: maxTransfer}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	var size uint32
	if _, err := call(f, blkSSZGet, unsafe.Pointer(&size)); err != nil {
		return nil, fmt.Errorf("%s is not a block device: %w", path, err)
	}
	var sectors uint16
	if _, err := call(f, blkSectGet, unsafe.Pointer(&sectors)); err != nil {
		return nil, fmt.Errorf("read the transfer size of %s: %w", path, err)
	}
	id, err := call(f, nvmeID, nil)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, failedCommand(0, err))
	case size == 0 || superblockBytes%size != 0 || int(sectors)*sectorBytes < superblockBytes:
		return nil, fmt.Errorf("%s has blocks of %d bytes and transfers of %d sectors: use blocks of 512 or 4096 bytes", path, size, sectors)
	}
	d.nsid, d.blockBytes = uint32(id), size
	d.maxBytes = min(d.maxBytes, int(sectors)*sectorBytes/superblockBytes*superblockBytes)
	return d, nil
}

// ReadAt reads whole blocks.
func (d *namespaceDisk) ReadAt(b []byte, at int64) (int, error) {
	return d.transfer(nvmeRead, b, at)
}

// WriteAt writes whole blocks, and returns when they are on stable storage.
func (d *namespaceDisk) WriteAt(b []byte, at int64) (int, error) {
	n, err := d.transfer(nvmeWrite, b, at)
	if err == nil {
		err = d.do(passthruCommand{opcode: nvmeFlush})
	}
	return n, err
}

func (d *namespaceDisk) transfer(opcode uint8, b []byte, at int64) (n int, err error) {
	if block := int64(d.blockBytes); at%block != 0 || int64(len(b))%block != 0 {
		return 0, fmt.Errorf("%d bytes at %d are not whole blocks of %d bytes", len(b), at, block)
	}
	buffer := aligned(min(len(b), d.maxBytes))
	for n < len(b) {
		part := buffer[:min(len(b)-n, len(buffer))]
		if opcode == nvmeWrite {
			copy(part, b[n:])
		}
		err := d.do(passthruCommand{
			opcode: opcode, address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part)))), length: uint32(len(part)),
			start: uint64(at+int64(n)) / uint64(d.blockBytes), blocks: uint32(len(part))/d.blockBytes - 1,
		})
		runtime.KeepAlive(buffer)
		if err != nil {
			return n, err
		}
		if opcode == nvmeRead {
			copy(b[n:], part)
		}
		n += len(part)
	}
	return n, nil
}

func (d *namespaceDisk) do(c passthruCommand) error {
	c.nsid, c.timeoutMS = d.nsid, uint32(commandTimeout.Milliseconds())
	return failedCommand(d.ioctl(d.file, nvmeIO, unsafe.Pointer(&c)))
}

// failedCommand returns the error of a command, by its status and the error of the ioctl. The error
// wraps ErrUnreachable if the server has not responded.
func failedCommand(status uintptr, err error) error {
	const pathRelated = 0x3 // status code type
	switch {
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EACCES), errors.Is(err, unix.EFAULT), errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("the kernel accepts no NVMe command for this device: %w", err)
	case err != nil: // no path, or the command was canceled (EINTR)
		return fmt.Errorf("%w: NVMe command: %w", ErrUnreachable, err)
	case status>>8&0x7 == pathRelated:
		return fmt.Errorf("%w: NVMe command: status %#x", ErrUnreachable, status)
	case status != 0:
		return fmt.Errorf("NVMe command: status %#x", status)
	}
	return nil
}

func (d *namespaceDisk) Close() error { return d.file.Close() }

func (d *namespaceDisk) size() (int64, error) { return d.file.Seek(0, io.SeekEnd) }

func (d *namespaceDisk) number() (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.file.Fd()), &st); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
}
