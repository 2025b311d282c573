package main

import (
	"context"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/mount"
)

// shutDownFilesystem tests a file system that is shut down while its device remains. Older kernels
// do not show the shutdown in the mount options, and serve the directory of an ext4 file system
// from memory.
func (v *volume) shutDownFilesystem() {
	v.step("connect", v.connect)
	v.step("mount", v.stage(false))
	v.step("check: usable", func(ctx context.Context) (string, error) { return "", v.Check(ctx, v.staging()) })
	v.step("publish", v.publish)
	v.step("write", v.write)
	v.step("the kernel shuts the file system down", func(ctx context.Context) (string, error) {
		if err := shutdown(v.staging()); err != nil {
			return "", err
		}
		return refusal(v.Check(ctx, v.staging()), mount.ErrBroken)
	})
	v.step("not replaced below a pod", func(ctx context.Context) (string, error) {
		_, err := v.stage(false)(ctx)
		return refusal(err, mount.ErrBusy)
	})
	v.step("unpublish", v.unpublish)
	v.step("the mount is replaced", v.stage(false))
	v.step("check: usable again", func(ctx context.Context) (string, error) { return "", v.Check(ctx, v.staging()) })
	v.step("publish", v.publish)
	v.step("read", v.read)
	v.step("unpublish", v.unpublish)
	v.step("unstage", v.unstage)
	v.step("disconnect", v.disconnect)
}

// shutdown shuts down a file system, as the kernel does after errors.
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
