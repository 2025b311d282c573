package mount

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Stats returns the size and usage, in bytes and inodes, of the file system mounted at path.
func (m *Mounter) Stats(ctx context.Context, path string) (Stats, error) {
	target, err := canonical(path)
	var st unix.Statfs_t
	if err == nil {
		st, err = operation.Share(ctx, &m.operations, "statfs "+target, func() (unix.Statfs_t, error) { return m.statfs(target) })
	}
	if err != nil {
		return Stats{}, fmt.Errorf("statistics of %s: %w", path, err)
	}
	unit := int64(st.Frsize)
	return Stats{
		TotalBytes:     int64(st.Blocks) * unit,
		AvailableBytes: int64(st.Bavail) * unit,
		UsedBytes:      int64(st.Blocks-st.Bfree) * unit,
		TotalInodes:    int64(st.Files),
		FreeInodes:     int64(st.Ffree),
		UsedInodes:     int64(st.Files - st.Ffree),
	}, nil
}

func (m *Mounter) statfs(path string) (st unix.Statfs_t, err error) {
	// Without a mount, statfs would return the statistics of the parent file system.
	switch p, err := m.at(path); {
	case err != nil:
		return st, err
	case p.Stale:
		return st, fmt.Errorf("%w: the device was removed: stage the volume again", ErrNotMounted)
	}
	for {
		if err = unix.Statfs(path, &st); !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}

// DeviceSize returns the size in bytes of the raw block volume published at path, or of the block
// device at path.
func (m *Mounter) DeviceSize(ctx context.Context, path string) (int64, error) {
	size, err := operation.Share(ctx, &m.operations, "size of "+path, func() (int64, error) { return deviceSize(path) })
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", path, err)
	}
	return size, nil
}

func deviceSize(device string) (int64, error) {
	if _, err := blockRdev(device); err != nil {
		return 0, err
	}
	d, err := os.OpenFile(device, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	return d.Seek(0, io.SeekEnd)
}
