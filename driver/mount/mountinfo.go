package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// At returns the mount at path. It fails with [ErrNotMounted] if nothing is mounted there. At does
// not access the mounted file system, which may hang or be broken.
func (m *Mounter) At(path string) (Point, error) {
	path, err := canonical(path)
	if err != nil {
		return Point{}, err
	}
	return m.at(path)
}

func (m *Mounter) at(path string) (Point, error) {
	all, err := m.points()
	if err != nil {
		return Point{}, err
	}
	// If there are several mounts at this path, the last mount hides the others.
	for _, p := range slices.Backward(all) {
		if p.Path == path {
			return m.complete(p)
		}
	}
	return Point{}, fmt.Errorf("%s: %w", path, ErrNotMounted)
}

// points lists all mounts, oldest first.
func (m *Mounter) points() ([]Point, error) {
	f, err := os.Open(m.mountInfo)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	all := make([]Point, len(infos))
	for i, info := range infos {
		all[i] = Point{
			Path:      strings.TrimSuffix(info.Mountpoint, deleted),
			FSType:    info.FSType,
			number:    fmt.Sprintf("%d:%d", info.Major, info.Minor),
			root:      info.Root,
			options:   strings.Split(info.Options, ","),
			superOpts: strings.Split(info.VFSOptions, ","),
		}
		if info.FSType == btrfs {
			// For btrfs, mountinfo contains a device number that does not belong to a block device.
			if number, err := blockRdev(info.Source); err == nil {
				all[i].number = number
			}
		}
		all[i].ReadOnly = slices.Contains(all[i].options, "ro") || slices.Contains(all[i].superOpts, "ro")
	}
	return all, nil
}

// complete adds the device to a mount. A raw block volume is a mount of a single file in the file
// system at /dev.
func (m *Mounter) complete(p Point) (Point, error) {
	if p.root != "/" && (p.FSType == "devtmpfs" || p.FSType == "tmpfs") {
		// Calling stat is safe here, because the file systems at /dev cannot hang.
		if number, err := blockRdev(p.Path); err == nil {
			p.Block, p.FSType, p.number = true, "", number
			p.Stale = strings.HasSuffix(p.root, deleted)
		}
	}
	name, err := m.deviceName(p.number)
	switch {
	case err == nil && !p.Stale:
		p.Device = filepath.Join(m.dev, name)
	case errors.Is(err, fs.ErrNotExist):
		p.Stale = !strings.HasPrefix(p.number, "0:") || p.FSType == btrfs // major 0: file systems without a device
	case err != nil:
		return p, fmt.Errorf("find the device mounted at %s: %w", p.Path, err)
	}
	return p, nil
}

// deleted is the suffix that mountinfo adds to the name of a removed file.
const deleted = "//deleted"

func (m *Mounter) deviceName(number string) (string, error) {
	link, err := os.Readlink(filepath.Join(m.sysBlock, number))
	if err != nil {
		return "", err
	}
	return filepath.Base(link), nil
}

// canonical resolves the symlinks in the parents of path, as the kernel does. It does not access
// path itself.
func canonical(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: path %q is not absolute", ErrInvalid, path)
	}
	path = filepath.Clean(path)
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil // nothing can be mounted below a missing directory
	}
	if err != nil {
		return "", fmt.Errorf("resolve %s: %w", path, err)
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// blockRdev returns the device number of a block device's node, as major:minor.
func blockRdev(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", fmt.Errorf("%w: %s is not a block device", ErrInvalid, path)
	}
	return fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), nil
}
