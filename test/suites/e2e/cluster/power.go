package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Mount is a mount below a node's /var/lib/kubelet.
type Mount struct{ Device, Path, Kind string }

// Mounts returns the mounts below /var/lib/kubelet. A node without power has no mounts.
func (n *Node) Mounts() ([]Mount, error) {
	if n.machine == nil {
		return nil, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", n.machine.Pid()))
	if err != nil {
		return nil, err
	}
	var found []Mount
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); strings.HasPrefix(f[1], "/var/lib/kubelet/") {
			found = append(found, Mount{Device: f[0], Path: f[1], Kind: f[2]})
		}
	}
	return found, nil
}

// openVolumes opens the file systems on loop devices, so that they remain mounted for a moment
// after the node's processes have ended.
func (n *Node) openVolumes() ([]*os.File, error) {
	mounts, err := n.Mounts()
	if err != nil {
		return nil, err
	}
	return openEach(fmt.Sprintf("/proc/%d/root", n.machine.Pid()), mounts)
}

// openEach opens each file system on a loop device that shutDown can end. It opens each file system
// once, no matter how often it is mounted below root. It skips an XFS that has already been shut
// down, because even fstat fails there with EIO.
func openEach(root string, mounts []Mount) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			files = nil
		}
	}()
	opened := map[uint64]bool{}
	for _, m := range mounts {
		if !strings.HasPrefix(m.Device, "/dev/loop") || m.Kind != "ext4" && m.Kind != "xfs" {
			continue
		}
		f, err := os.Open(filepath.Join(root, m.Path))
		switch {
		case errors.Is(err, fs.ErrNotExist): // unmounted in the meantime
			continue
		case errors.Is(err, unix.EIO):
			continue
		case err != nil:
			return files, err
		}
		var stat unix.Stat_t
		switch err := unix.Fstat(int(f.Fd()), &stat); {
		case errors.Is(err, unix.EIO), err == nil && opened[stat.Dev]:
			if err := f.Close(); err != nil {
				return files, err
			}
			continue
		case err != nil:
			return files, errors.Join(fmt.Errorf("%s: %w", f.Name(), err), f.Close())
		}
		opened[stat.Dev] = true
		files = append(files, f)
	}
	return files, nil
}

const (
	loopMajor = 7
	// shutdownFS is an ioctl that ends an ext4 or XFS file system without writing anything:
	// FS_IOC_SHUTDOWN with NOLOGFLUSH.
	shutdownFS = 0x8004587d
	noLogFlush = 2
)

// shutDown ends the file system of an open file without writing anything. It fails unless the file
// system is on a loop device.
func shutDown(f *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	if unix.Major(stat.Dev) != loopMajor {
		return fmt.Errorf("%s is not on a loop device", f.Name())
	}
	mode := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdownFS, uintptr(unsafe.Pointer(&mode))); errno != 0 {
		return fmt.Errorf("shut down the file system of %s: %w", f.Name(), errno)
	}
	return nil
}
