package main

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/mount"
)

// deadFilesystem is what happens when a file system is shut down and its device stays. Older kernels do not list it among
// the mount's options, and let the directory of an ext4 be read from memory.
func (v *volume) deadFilesystem() {
	v.step("connect", v.connect)
	v.step("mount", v.stage(false))
	v.step("it is healthy", func(ctx context.Context) (string, error) { return "", v.Check(ctx, v.staging()) })
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("the kernel shuts the file system down", func(ctx context.Context) (string, error) {
		if err := shutdown(v.staging()); err != nil {
			return "", err
		}
		return refusal(v.Check(ctx, v.staging()), mount.ErrBroken)
	})
	v.step("below a pod it stays", func(ctx context.Context) (string, error) {
		_, err := v.stage(false)(ctx)
		return refusal(err, mount.ErrBusy)
	})
	v.step("unpublish", v.unpublish)
	v.step("it is replaced", v.stage(false))
	v.step("and healthy", func(ctx context.Context) (string, error) { return "", v.Check(ctx, v.staging()) })
	v.step("publish", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("disconnect", v.disconnect)
}

// shutdown makes a file system fail as it does after errors.
func shutdown(path string) error {
	const goingDown = 2<<30 | 4<<16 | 'X'<<8 | 125 // XFS_IOC_GOINGDOWN, EXT4_IOC_SHUTDOWN
	logFlush := uint32(1)
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&logFlush))); errno != 0 {
		return fmt.Errorf("shut down the file system at %s: %w", path, errno)
	}
	return nil
}
