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

// A Mount is a mount below /var/lib/kubelet of a node.
type Mount struct{ Device, Path, Kind string }

// Mounts returns the mounts below /var/lib/kubelet. A node without power has none.
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

// openVolumes opens the file systems on loop devices, so that they stay mounted for a moment when the node's processes have ended.
func (n *Node) openVolumes() ([]*os.File, error) {
	mounts, err := n.Mounts()
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range mounts {
		if !strings.HasPrefix(m.Device, "/dev/loop") || m.Kind == "devtmpfs" {
			continue
		}
		f, err := os.Open(filepath.Join(fmt.Sprintf("/proc/%d/root", n.machine.Pid()), m.Path))
		if errors.Is(err, fs.ErrNotExist) {
			continue // unmounted since
		}
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

const (
	loopMajor = 7
	// shutdownFS, of ext4 and XFS, ends a file system without writing anything: FS_IOC_SHUTDOWN with NOLOGFLUSH.
	shutdownFS = 0x8004587d
	noLogFlush = 2
)

// shutDown ends the file system of an open file without writing anything. It fails unless that is on a loop device.
func shutDown(f *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	if unix.Major(stat.Dev) != loopMajor {
		return fmt.Errorf("%s is not on a loop device", f.Name())
	}
	how := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdownFS, uintptr(unsafe.Pointer(&how))); errno != 0 {
		return fmt.Errorf("shut down the file system of %s: %w", f.Name(), errno)
	}
	return nil
}
