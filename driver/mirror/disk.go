package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A disk is an open replica.
type disk interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// size returns the size in bytes.
	size() (int64, error)
	// number returns the device's number in the format major:minor.
	number() (string, error)
}

// disks opens replicas by path. Tests replace disks.
type disks interface {
	open(path string) (disk, error)
	// number returns the number of a device without opening the device.
	number(path string) (string, error)
}

// namespaces opens the block devices of NVMe namespaces.
type namespaces struct{}

func (namespaces) open(path string) (disk, error) {
	d, err := openNamespace(path, kernelIoctl)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (namespaces) number(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
}

// aligned returns a buffer that is aligned for direct I/O.
func aligned(n int) []byte {
	const alignment = 4096
	b := make([]byte, n+alignment)
	skip := alignment - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%alignment)
	return b[skip : skip+n : skip+n]
}

// iocb and ioEvent are structs of linux/aio_abi.h on a little-endian machine. Fields that are zero
// in a read of the first block have no names.
type iocb struct {
	_             uint64    // aio_data
	_             [2]uint32 // aio_key, aio_rw_flags
	_             [2]uint16 // aio_lio_opcode, aio_reqprio
	fd            uint32
	buffer, bytes uint64
	_             [3]uint64 // aio_offset and the rest
}

type ioEvent struct {
	data, object uint64
	result       int64
	_            int64
}

// queueRead starts to read a device's first block. It uses the asynchronous I/O of the kernel,
// which guarantees that the read is in the device's queue when io_submit returns.
func queueRead(path string) (func(context.Context) error, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	// Allocate the buffer with mmap, because the kernel writes to it while no Go variable refers to
	// it.
	buffer, err := unix.Mmap(-1, 0, superblockBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	var queue uintptr
	end := func() {
		if queue != 0 {
			unix.Syscall(unix.SYS_IO_DESTROY, queue, 0, 0) // waits for the read
		}
		unix.Munmap(buffer)
		f.Close()
	}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&queue)), 0); errno != 0 {
		end()
		return nil, fmt.Errorf("io_setup: %w", errno)
	}
	control := &iocb{fd: uint32(f.Fd()), buffer: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buffer)))), bytes: superblockBytes}
	list := []*iocb{control}
	n, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, queue, 1, uintptr(unsafe.Pointer(unsafe.SliceData(list))))
	runtime.KeepAlive(control)
	if errno != 0 || n != 1 {
		end()
		return nil, fmt.Errorf("io_submit: %w", errno)
	}
	done := make(chan error, 1)
	go func() {
		defer end()
		done <- awaitRead(queue)
	}()
	return func(ctx context.Context) error {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, nil
}

func awaitRead(queue uintptr) error {
	for {
		var event ioEvent
		timeout := unix.NsecToTimespec(int64(time.Minute))
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, queue, 1, 1, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&timeout)), 0)
		switch {
		case errno == unix.EINTR, errno == 0 && n == 0:
		case errno != 0:
			return fmt.Errorf("io_getevents: %w", errno)
		case event.result < 0:
			return fmt.Errorf("read the mirror's first block: %w", unix.Errno(-event.result))
		default:
			return nil
		}
	}
}
