package device

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenFile opens a file or block device for reading. If possible, reads bypass the host's page
// cache, because the target's writes bypass it.
func OpenFile(path string) (*Device, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, syscall.EINVAL) {
		f, err = os.OpenFile(path, os.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: run this on the target's host, as a user who may read it", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && info.Mode().Type() != os.ModeDevice {
		err = fmt.Errorf("%s is neither a file nor a block device", path)
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Device{&direct{file: f}, f, size, path}, nil
}

// direct is a reader that uses memory aligned for direct I/O. Offsets and lengths must be multiples
// of 4 KiB.
type direct struct {
	file *os.File
	mu   sync.Mutex
	b    []byte
}

const alignment = 4096

func (d *direct) ReadAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.b) < len(b) {
		all := make([]byte, len(b)+alignment)
		d.b = all[-uintptr(unsafe.Pointer(unsafe.SliceData(all)))%alignment:]
	}
	n, err := d.file.ReadAt(d.b[:len(b)], at)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrRead, err)
	}
	return copy(b, d.b[:n]), err
}
