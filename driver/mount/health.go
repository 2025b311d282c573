package mount

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spdkgate/spdkgate/driver/operation"
)

// Check returns an error unless the file system mounted at path can be used. It reads from its device and writes to its journal.
// An error of kind [ErrBroken] is healed by [Mounter.FormatAndMount]. One of kind [ErrUnreadable] says that the device
// answers with errors: nothing can be done until it does no longer.
func (m *Mounter) Check(ctx context.Context, path string) error {
	target, err := canonical(path)
	if err == nil {
		_, err = operation.Share(ctx, &m.operations, "file system at "+target, func() (struct{}, error) { return struct{}{}, m.check(target) })
	}
	if err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	return nil
}

func (m *Mounter) check(path string) error {
	p, err := m.at(path)
	if err != nil {
		return err
	}
	return p.usable()
}

// usable is an error of kind ErrBroken if the mount cannot be used any more, of kind ErrUnreadable if its device cannot.
func (p Point) usable() error {
	if p.Stale {
		return fmt.Errorf("%w: its device was removed", ErrBroken)
	}
	// Newer kernels tell. Others do not, and let a directory be read from memory.
	for _, sign := range []string{"shutdown", "emergency_ro"} {
		if slices.Contains(p.superOpts, sign) {
			return fmt.Errorf("%w: the kernel shut it down after errors (%s)", ErrBroken, sign)
		}
	}
	if slices.Contains(p.superOpts, "ro") && !slices.Contains(p.options, "ro") {
		return fmt.Errorf("%w: the kernel made it read-only after errors", ErrBroken)
	}
	// Of a device that fails nothing can be learnt about the file system on it, and none can be mounted.
	if p.Device != "" {
		if err := readDirectly(p.Device); err != nil {
			return err
		}
	}
	if err := touchRoot(p.Path); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

// touchRoot uses the root directory in the two ways that fail when a file system was shut down: xfs refuses to open it,
// ext4 to commit its journal. Both are short, and change nothing.
func touchRoot(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readDirectly reads the start of a device, from itself and not from memory.
func readDirectly(device string) error {
	const length = 64 << 10 // a multiple of any device's block size
	failed := func(err error) error {
		return fmt.Errorf("%w: %s answers with errors: %w: check whether the target is running", ErrUnreadable, device, err)
	}
	buf, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT wants it
	if err != nil {
		return fmt.Errorf("read %s: memory: %w", device, err)
	}
	defer func() { _ = unix.Munmap(buf) }()
	d, err := os.OpenFile(device, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return failed(err)
	}
	defer d.Close()
	if _, err := d.ReadAt(buf, 0); err != nil {
		return failed(err)
	}
	return nil
}

// replaceable refuses while a broken file system is mounted elsewhere too, as it is below running pods: it could then
// neither be checked nor mounted anew. Where the device is gone there is nothing left to protect: what is mounted anew
// is on another device.
func (m *Mounter) replaceable(p Point) error {
	if p.Stale {
		return nil
	}
	all, err := m.points()
	if err != nil {
		return err
	}
	var others []string
	for _, o := range all {
		if o.number == p.number && o.Path != p.Path && !slices.Contains(others, o.Path) {
			others = append(others, o.Path)
		}
	}
	if len(others) > 0 {
		return fmt.Errorf("%w: it can be mounted again once nothing uses it: delete the pods at %s", ErrBusy, strings.Join(others, ", "))
	}
	return nil
}

// replace unmounts a mount for which why says that it is broken.
func (m *Mounter) replace(p Point, why error) error {
	if !errors.Is(why, ErrBroken) {
		return why
	}
	if err := m.replaceable(p); err != nil {
		return fmt.Errorf("%w: %w", why, err)
	}
	m.log.Warn("replacing a broken mount", "path", p.Path, "device", p.Device, "why", why)
	return m.unmountAll(p.Path)
}
