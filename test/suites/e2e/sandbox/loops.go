package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A file is identified by its device and inode, because its path depends on the mount namespace.
type file struct{ dev, inode uint64 }

// Loops returns the loop devices on files below a directory, and the loop devices on top of these,
// in an order that allows detaching them.
func Loops(dir string) ([]string, error) { return loops(dir, anyLabel) }

func anyLabel(string) bool { return true }

// loops returns the loop devices whose labels match, and the loop devices on top of these.
func loops(dir string, match func(label string) bool) ([]string, error) {
	files := map[file]bool{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			files[file{s.Dev, s.Ino}] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found []string
	ours := map[uint64]bool{} // numbers of the devices in found
	for again := true; again; {
		again = false
		names, err := filepath.Glob("/sys/block/loop*/loop")
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			name := filepath.Base(filepath.Dir(n))
			info, number, err := loopInfo("/dev/" + name)
			if err != nil {
				return nil, err
			}
			if info == nil || ours[number] || !ours[info.Rdevice] &&
				!(files[file{info.Device, info.Inode}] && match(unix.ByteSliceToString(info.File_name[:]))) {
				continue
			}
			ours[number], again = true, true
			found = append([]string{"/dev/" + name}, found...) // a device on another one comes before it
		}
	}
	return found, nil
}

// loopInfo returns a loop device's state and number. The state is nil if the device is not
// attached.
func loopInfo(path string) (*unix.LoopInfo64, uint64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return nil, 0, err
	}
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("state of %s: %w", path, err)
	}
	return info, stat.Rdev, nil
}

// detachLoops detaches the loop devices that loops returns, and returns those that are still
// attached.
func detachLoops(dir string, match func(label string) bool) ([]string, error) {
	paths, err := loops(dir, match)
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if err := detach(p); err != nil {
			return nil, err
		}
	}
	return loops(dir, match)
}

func detach(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", path, err)
	}
	return nil
}

// DetachLoops detaches the loop devices on files below a directory whose label has the given
// prefix, and the loop devices on top of these. The devices must no longer be in use.
func DetachLoops(dir, prefix string) error {
	return eventually("loop devices", func() ([]string, error) {
		return detachLoops(dir, func(label string) bool { return strings.HasPrefix(label, prefix) })
	})
}
