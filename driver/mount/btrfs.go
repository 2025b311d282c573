package mount

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file uses structures and ioctls of linux/btrfs.h.

// btrfsSize reads the size of the only device of a mounted btrfs.
func btrfsSize(path string) (int64, error) {
	type deviceInfo struct { // struct btrfs_ioctl_dev_info_args
		id         uint64
		_          [16]byte
		used, size uint64
		_          [4056]byte
	}
	info := deviceInfo{id: 1}
	const devInfo = 3<<30 | unsafe.Sizeof(info)<<16 | 0x94<<8 | 30 // BTRFS_IOC_DEV_INFO
	if err := btrfsIoctl(path, devInfo, unsafe.Pointer(&info)); err != nil {
		return 0, fmt.Errorf("size of the btrfs at %s: %w", path, err)
	}
	return int64(info.size), nil
}

// forgetDevice makes the kernel forget an unmounted device of a btrfs file system.
func forgetDevice(device string) error {
	type volume struct { // struct btrfs_ioctl_vol_args
		_    int64
		name [4088]byte
	}
	var v volume
	copy(v.name[:len(v.name)-1], device)
	const forgetDev = 1<<30 | unsafe.Sizeof(v)<<16 | 0x94<<8 | 5 // BTRFS_IOC_FORGET_DEV
	return btrfsIoctl("/dev/btrfs-control", forgetDev, unsafe.Pointer(&v))
}

func btrfsIoctl(path string, request uintptr, arg unsafe.Pointer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}
