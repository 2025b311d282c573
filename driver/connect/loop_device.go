package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Loop devices are controlled by ioctl, because losetup's output and options differ between
// releases.

// attachedDevices lists the attached loop devices for which match returns true.
func (l *loop) attachedDevices(match func(*unix.LoopInfo64) bool) ([]string, error) {
	names, err := l.node.entries("sys/block")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	slices.Sort(names)
	var found []string
	for _, name := range names {
		if !l.node.exists("sys/block", name, "loop") {
			continue // a disk of another kind, or a loop device without a file
		}
		var info *unix.LoopInfo64
		err := l.withDevice(name, os.O_RDONLY, func(fd int) (err error) {
			info, err = unix.IoctlLoopGetStatus64(fd)
			return err
		})
		if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist) {
			continue // detached after it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("status of %s: %w", name, err)
		}
		if match(info) {
			found = append(found, name)
		}
	}
	return found, nil
}

// attachedTo lists the loop devices on a volume's file. It compares device and inode numbers,
// because the path may now refer to another file. attachedTo ignores loop devices of other hosts.
func (l *loop) attachedTo(v volumeFile) ([]string, error) {
	var foreign string
	found, err := l.attachedDevices(func(info *unix.LoopInfo64) bool {
		same := info.Device == v.dev && info.Inode == v.inode && !isOfOtherHost(labelOf(info), v.label)
		if same && labelOf(info) != v.label {
			foreign = fmt.Sprintf("loop%d", info.Number)
		}
		return same
	})
	if err == nil && foreign != "" {
		return nil, fmt.Errorf("%w: %s is attached to %s by another program: detach it (losetup -d /dev/%s)", ErrBusy, v.backing.Name(), foreign, foreign)
	}
	return found, err
}

// labelled lists the loop devices that attach created for this host and an export.
func (l *loop) labelled(e Export) ([]string, error) {
	want := label(l.host, e, e.NSUUID)
	return l.attachedDevices(func(info *unix.LoopInfo64) bool {
		return labelOf(info) == want || e.NSUUID == "" && strings.HasPrefix(labelOf(info), want)
	})
}

func labelOf(info *unix.LoopInfo64) string { return unix.ByteSliceToString(info.File_name[:]) }

// attach attaches a volume's file to a free loop device. If another process takes the device first,
// attach tries another device.
func (l *loop) attach(ctx context.Context, v volumeFile) error {
	control, err := os.OpenFile(l.node.path("dev/loop-control"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: no loop devices: load the kernel module loop, run privileged and mount the host's /dev (%w)", ErrUnsupported, err)
	}
	defer control.Close()
	config := &unix.LoopConfig{Fd: uint32(v.backing.Fd())}
	copy(config.Info.File_name[:len(config.Info.File_name)-1], v.label)
	var last error
	inTime, err := poll(ctx, func() (bool, error) {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return false, fmt.Errorf("find a free loop device: %w", err)
		}
		name := fmt.Sprintf("loop%d", number)
		last = l.withDevice(name, os.O_RDWR, func(fd int) error {
			if err := unix.IoctlLoopConfigure(fd, config); err != nil {
				return err
			}
			// A loop device may still be write-protected from an earlier file, so clear the
			// protection.
			return unix.IoctlSetPointerInt(fd, unix.BLKROSET, 0)
		})
		if errors.Is(last, unix.EBUSY) || errors.Is(last, unix.ENXIO) || errors.Is(last, fs.ErrNotExist) {
			return false, nil
		}
		if last != nil {
			return false, fmt.Errorf("attach %s to %s: %w", v.backing.Name(), name, last)
		}
		return true, nil
	})
	if err == nil && !inTime {
		err = fmt.Errorf("%w looking for a free loop device: %w", timeout(ctx), last)
	}
	return err
}

func (l *loop) setCapacity(name string) error {
	err := l.withDevice(name, os.O_RDONLY, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
	if err != nil {
		return fmt.Errorf("read the size of %s again: %w", name, err)
	}
	return nil
}

func (l *loop) detach(name string) error {
	err := l.withDevice(name, os.O_RDONLY, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0) })
	if err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detach %s: %w", name, err)
	}
	return nil
}

func (l *loop) withDevice(name string, mode int, do func(fd int) error) error {
	f, err := os.OpenFile(l.node.path("dev", filepath.Base(name)), mode, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}
