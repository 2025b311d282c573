package connect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// node accesses the kernel of this node through files. Tests replace the file tree and the
// functions.
type node struct {
	root string // prefix to /sys, /dev and /proc
	// write writes a sysfs attribute.
	write func(path, text string) error
	// exchange writes to a device, and returns the device's response.
	exchange func(path, text string) (string, error)
	// rdev returns the device number behind a block device's node.
	rdev func(path string) (uint64, error)
	// claim opens a block device exclusively and closes it again, to check that nothing is using
	// the device. It fails with EBUSY if the device is in use.
	claim func(path string) error
	// list returns the names in a directory.
	list func(path string) ([]string, error)
}

func newNode(root string) *node {
	return &node{root: root, write: writeAttribute, exchange: exchange, rdev: blockRdev, claim: claim, list: list}
}

func writeAttribute(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func exchange(path, text string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n, err := f.Read(answer)
	return strings.TrimSpace(string(answer[:n])), err
}

func blockRdev(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: syscall.ENOTBLK}
	}
	return st.Rdev, nil
}

func claim(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_EXCL|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open exclusively", Path: path, Err: err}
	}
	return unix.Close(fd)
}

func list(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

func (n *node) path(elem ...string) string {
	return n.root + "/" + filepath.Join(elem...)
}

// attribute returns a sysfs attribute, or an empty string if it cannot be read.
func (n *node) attribute(elem ...string) string {
	b, err := os.ReadFile(n.path(elem...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (n *node) exists(elem ...string) bool {
	_, err := os.Lstat(n.path(elem...))
	return err == nil
}

// entries lists the names in a sysfs directory. If the directory does not exist, the list is empty.
func (n *node) entries(elem ...string) ([]string, error) {
	names, err := n.list(n.path(elem...))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return nil, nil
	}
	return names, err
}

// device returns the block device with a sysfs name. It fails unless the device node in /dev exists
// and has the same device number.
func (n *node) device(name string) (Device, error) {
	number := n.attribute("sys/block", name, "dev")
	size, err := n.size(name)
	if err != nil {
		return Device{}, err
	}
	path := n.path("dev", name)
	rdev, err := n.rdev(path)
	if err != nil {
		return Device{}, fmt.Errorf("the kernel has %s, but its device node is not usable: check whether the host's /dev is mounted: %w", name, err)
	}
	if got := fmt.Sprintf("%d:%d", unix.Major(rdev), unix.Minor(rdev)); got != number {
		return Device{}, fmt.Errorf("%w: %s has device number %s, but the kernel gave %s the number %s", ErrAmbiguous, path, got, name, number)
	}
	return Device{Path: path, SizeBytes: size}, nil
}

func (n *node) size(name string) (int64, error) {
	text := n.attribute("sys/block", name, "size")
	sectors, err := strconv.ParseInt(text, 10, 64)
	if err != nil || sectors < 0 {
		return 0, fmt.Errorf("size of block device %s: sysfs has %q", name, text)
	}
	return sectors * 512, nil
}

// inUse fails with ErrBusy if the block device is mounted, used by another device, or published as
// a raw block volume.
func (n *node) inUse(name string) error {
	switch err := n.claim(n.path("dev", name)); {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %s is mounted or held by another device on this node: unmount it first", ErrBusy, name)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		// Nothing can be using the device, because its node or the device itself does not exist.
	case err != nil:
		return fmt.Errorf("check whether %s is in use: %w", name, err)
	}
	mounts, err := n.mounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if m.Root == "/"+name && (m.FSType == "devtmpfs" || m.FSType == "tmpfs") {
			return fmt.Errorf("%w: %s is published as a raw block volume at %s: unpublish it first", ErrBusy, name, m.Mountpoint)
		}
	}
	return nil
}

func (n *node) mounts() ([]*mountinfo.Info, error) {
	f, err := os.Open(n.path("proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return mounts, nil
}
