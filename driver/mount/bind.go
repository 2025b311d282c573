package mount

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Bind mounts a staged file system at a second path. If the target directory does not exist, Bind
// creates it. Bind applies only flags that belong to the mount (nosuid, noexec, …), not to the file
// system.
func (m *Mounter) Bind(ctx context.Context, source, target string, readOnly bool, flags []string) error {
	flags, ro, err := checkFlags("", flags)
	if err == nil {
		source, err = canonical(source)
	}
	if err == nil {
		target, err = canonical(target)
	}
	if err == nil {
		_, err = operation.Run(ctx, &m.operations, []string{target}, func(ctx context.Context, step *operation.Step) (struct{}, error) {
			return struct{}{}, m.bind(ctx, source, target, readOnly || ro, perMountFlags(flags), step)
		})
	}
	if err != nil {
		return fmt.Errorf("publish %s at %s: %w", source, target, err)
	}
	return nil
}

func (m *Mounter) bind(ctx context.Context, source, target string, readOnly bool, flags []string, step *operation.Step) error {
	step.Doing("reading the mounts")
	staged, err := m.at(source)
	if err != nil {
		return fmt.Errorf("the volume is not staged: %w", err)
	}
	if staged.Stale {
		return fmt.Errorf("the volume's device has been removed since staging; stage the volume again: %w", ErrNotMounted)
	}
	if staged.ReadOnly && !readOnly {
		return fmt.Errorf("%w: the volume is staged read-only, but read-write is requested", ErrConflict)
	}
	done, err := m.isPublished(target, func(p Point) bool { return p.number == staged.number && p.root == staged.root }, readOnly, flags)
	if done || err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("create the target path: %w", err)
	}
	return m.bindMount(ctx, source, target, readOnly, flags, step)
}

// isPublished reports whether target is mounted from the right source with the right options. It
// removes a stale mount, and fails for any other mount.
func (m *Mounter) isPublished(target string, same func(Point) bool, readOnly bool, flags []string) (bool, error) {
	p, err := m.at(target)
	switch {
	case errors.Is(err, ErrNotMounted):
		return false, nil
	case err != nil:
		return false, err
	case p.Stale:
		m.log.Warn("replacing a stale mount", "path", target)
		return false, m.unmountAll(target)
	case !same(p):
		return false, fmt.Errorf("%w: %s is mounted at this path: unpublish it first", ErrConflict, orUnknown(p.Device))
	}
	return true, p.conflict(readOnly, flags)
}

// bindMount creates a bind mount and verifies it. The kernel creates a bind mount with the options
// of its source, so bindMount then remounts it with its own options. If the remount fails, it
// removes the mount.
func (m *Mounter) bindMount(ctx context.Context, source, target string, readOnly bool, flags []string, step *operation.Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	options := append([]string{"bind"}, flags...)
	if readOnly {
		options = append(options, "ro")
	}
	step.Doing("mount --bind %s %s", source, target)
	err := m.mount.Mount(source, target, "", options)
	if err == nil {
		var p Point
		if p, err = m.at(target); err == nil {
			err = p.conflict(readOnly, flags)
		}
	}
	if err != nil {
		return errors.Join(err, m.unmountAll(target))
	}
	return nil
}

// BindDevice publishes a raw block volume. It mounts a block device's node over the file target,
// which it creates if necessary. All publications of a device on one node must be read-only, or all
// must be read-write: a bind mount cannot write-protect a device, so BindDevice write-protects the
// device itself.
func (m *Mounter) BindDevice(ctx context.Context, device, target string, readOnly bool) error {
	number, err := blockRdev(device)
	if err == nil {
		target, err = canonical(target)
	}
	if err == nil {
		_, err = operation.Run(ctx, &m.operations, []string{"device " + number, target}, func(ctx context.Context, step *operation.Step) (struct{}, error) {
			return struct{}{}, m.bindDevice(ctx, device, number, target, readOnly, step)
		})
	}
	if err != nil {
		return fmt.Errorf("publish device %s at %s: %w", device, target, err)
	}
	return nil
}

func (m *Mounter) bindDevice(ctx context.Context, device, number, target string, readOnly bool, step *operation.Step) error {
	done, err := m.isPublished(target, func(p Point) bool { return p.Block && p.number == number }, readOnly, nil)
	if done || err != nil {
		return err
	}
	if err := m.sameAccess(device, readOnly); err != nil {
		return err
	}
	step.Doing("setting %s to read-only or read-write", device)
	if err := setReadOnly(device, readOnly); err != nil {
		return err
	}
	if err := makeFile(target); err != nil {
		return fmt.Errorf("create the target path: %w", err)
	}
	return m.bindMount(ctx, device, target, readOnly, nil, step)
}

// sameAccess fails if the device is already published with different access (read-only or
// read-write). It checks the device rather than its mounts, because kubelet's own mount is always
// read-write.
func (m *Mounter) sameAccess(device string, readOnly bool) error {
	others, err := m.publications(device)
	if err != nil || len(others) == 0 {
		return err
	}
	d, err := os.OpenFile(device, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	p := others[0]
	if p.ReadOnly, err = isProtected(d); err != nil {
		return err
	}
	return p.conflict(readOnly, nil)
}

// publications lists the bind mounts of the device node at device.
func (m *Mounter) publications(device string) ([]Point, error) {
	all, err := m.points()
	return slices.DeleteFunc(all, func(p Point) bool {
		return p.root != "/"+filepath.Base(device) || p.FSType != "devtmpfs" && p.FSType != "tmpfs"
	}), err
}

// releaseProtection makes a device writable when its last read-only publication is removed.
// Otherwise, reused devices, such as loop devices, would remain write-protected.
func (m *Mounter) releaseProtection(p Point) error {
	if !p.Block || !p.ReadOnly || p.Device == "" {
		return nil
	}
	left, err := m.publications(p.Device)
	if err != nil || len(left) > 0 {
		return err
	}
	return setReadOnly(p.Device, false)
}

func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Lstat(path)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%w: %s exists and is not a regular file", ErrConflict, path)
		}
		return err
	}
	if err != nil {
		return err
	}
	return f.Close()
}

func setReadOnly(device string, readOnly bool) error {
	d, err := os.OpenFile(device, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	value := 0
	if readOnly {
		value = 1
	}
	if err := unix.IoctlSetPointerInt(int(d.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("set %s to read-only %v: %w", device, readOnly, err)
	}
	return nil
}
