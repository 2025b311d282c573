package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Unmount unmounts path. It succeeds when nothing is mounted there.
func (m *Mounter) Unmount(ctx context.Context, path string) error {
	return m.unmount(ctx, path, false)
}

// UnmountAndRemove unmounts path and removes it, if it is an empty directory or file. It succeeds
// when path is not there.
func (m *Mounter) UnmountAndRemove(ctx context.Context, path string) error {
	return m.unmount(ctx, path, true)
}

func (m *Mounter) unmount(ctx context.Context, path string, remove bool) error {
	target, err := canonical(path)
	if err == nil {
		_, err = operation.Run(ctx, &m.operations, []string{target}, func(ctx context.Context, step *operation.Step) (struct{}, error) {
			step.Doing("umount %s", target)
			if err := m.unmountAll(target); err != nil || !remove {
				return struct{}{}, err
			}
			return struct{}{}, removeEmpty(target)
		})
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// unmountAll unmounts what is mounted at path, however often. It relies on mountinfo alone, so that
// mounts whose device is broken or gone are no different.
func (m *Mounter) unmountAll(path string) error {
	const most = 64
	var last Point
	for range most {
		switch p, err := m.at(path); {
		case errors.Is(err, ErrNotMounted):
			return m.releaseProtection(last)
		case err != nil:
			return err
		default:
			last = p
		}
		switch err := m.umount(path); {
		case errors.Is(err, unix.EBUSY):
			return fmt.Errorf("%w: end the processes that use %s (find them with lsof or fuser)", ErrBusy, path)
		case err != nil && !errors.Is(err, unix.EINVAL): // not mounted any more
			return fmt.Errorf("umount %s: %w", path, err)
		}
	}
	return fmt.Errorf("%w: %s is still mounted after %d unmounts: check whether something mounts it repeatedly", ErrBusy, path, most)
}

// umount calls the kernel: umount(8) only adds text in place of an error number.
func umount(path string) error { return unix.Unmount(path, unix.UMOUNT_NOFOLLOW) }

// removeEmpty removes an empty directory or file. Files there were written while nothing was
// mounted: they are a user's data.
func removeEmpty(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() && (!info.Mode().IsRegular() || info.Size() > 0) {
		return fmt.Errorf("%w: %s holds data, or is not a regular file: inspect it and remove it by hand", ErrNotEmpty, path)
	}
	err = os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("%w: %s holds files, though nothing is mounted there: inspect them and remove them by hand", ErrNotEmpty, path)
	}
	return err
}
