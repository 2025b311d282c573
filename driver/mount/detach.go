package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A mount that is in use is detached (lazily unmounted) only if its device has been removed from
// the kernel. Such a device never reappears, because a volume that is connected again becomes a new
// device. Later writes through the old mount therefore cannot reach the volume, and detaching the
// mount loses no data. If the device still exists, the mount may contain data that is not on the
// target yet, so the mount remains until it can be unmounted.

// detachGone detaches a mount that is in use if its device has been removed, and logs the evidence.
// If the device still exists, it fails with ErrBusy.
func (m *Mounter) detachGone(path string) error {
	p, err := m.at(path)
	if errors.Is(err, ErrNotMounted) {
		return nil
	}
	if err != nil {
		return err
	}
	proof, gone := m.proofOfRemoval(p)
	if !gone {
		return fmt.Errorf("%w: end the processes that use %s (find them with lsof or fuser)", ErrBusy, path)
	}
	m.log.Warn("detaching a mount that is in use, because its device was removed", "path", path, "device_number", p.number, "fstype", p.FSType,
		"superblock_options", strings.Join(p.superOpts, ","), "proof", proof)
	if err := m.detach(path); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: no longer mounted
		return fmt.Errorf("detach %s: %w", path, err)
	}
	return nil
}

// proofOfRemoval returns the evidence that a mount's device has been removed: the kernel's list of
// block device numbers exists, but does not contain the device. The list itself would be missing if
// sysfs were not mounted in the container.
func (m *Mounter) proofOfRemoval(p Point) (proof string, gone bool) {
	if strings.HasPrefix(p.number, "0:") {
		return "", false // a file system without a device
	}
	devices, err := os.ReadDir(m.sysBlock)
	if err != nil || len(devices) == 0 {
		return "", false
	}
	entry := filepath.Join(m.sysBlock, p.number)
	if _, err := os.Lstat(entry); !errors.Is(err, fs.ErrNotExist) {
		return "", false
	}
	return fmt.Sprintf("%s does not exist, while %s lists %d other devices", entry, m.sysBlock, len(devices)), true
}

// detach immediately removes the mount from the tree. The kernel releases a detached mount when the
// last process using it has closed its files.
func detach(path string) error { return unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH) }
