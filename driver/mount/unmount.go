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

// Unmount unmounts path. It succeeds if nothing is mounted there.
func (m *Mounter) Unmount(ctx context.Context, path string) error {
	return m.unmount(ctx, path, false)
}

// UnmountAndRemove unmounts path and removes it if it is an empty directory or file. It succeeds if
// path does not exist.
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

// unmountAll unmounts all mounts at path. It reads only mountinfo, so it works even for mounts of
// broken or removed devices.
func (m *Mounter) unmountAll(path string) error {
	const most = 64
	var last Point
	for range most {
		switch p, err := m.at(path); {
		case errors.Is(err, ErrNotMounted):
			m.forgetBtrfs(last)
			return m.releaseProtection(last)
		case err != nil:
			return err
		default:
			last = p
		}
		switch err := m.umount(path); {
		case errors.Is(err, unix.EBUSY):
			if err := m.detachGone(path); err != nil {
				return err
			}
		case err != nil && !errors.Is(err, unix.EINVAL): // EINVAL: no longer mounted
			return fmt.Errorf("umount %s: %w", path, err)
		}
	}
	return fmt.Errorf("%w: %s is still mounted after %d unmounts: check whether something mounts it repeatedly", ErrBusy, path, most)
}

// umount calls the kernel directly, because umount(8) reports failures as text instead of an error
// number.
func umount(path string) error { return unix.Unmount(path, unix.UMOUNT_NOFOLLOW) }

// removeEmpty removes an empty directory or file. It fails if the directory contains files, which
// must have been written there while nothing was mounted.
func removeEmpty(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() && (!info.Mode().IsRegular() || info.Size() > 0) {
		return fmt.Errorf("%w: %s has data, or is not a regular file: inspect it and remove it by hand", ErrNotEmpty, path)
	}
	err = os.Remove(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTEMPTY):
		return fmt.Errorf("%w: %s has files, although nothing is mounted there: inspect them and remove them by hand", ErrNotEmpty, path)
	}
	return err
}
