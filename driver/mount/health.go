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

// Check checks that the file system mounted at path is usable, by reading from the device and
// writing to the journal. After an error that wraps [ErrBroken], [Mounter.FormatAndMount] mounts
// the file system again. An error that wraps [ErrUnreadable] means that the device returns errors.
// The caller should wait until the device recovers.
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
	return p.checkUsable()
}

// checkUsable fails with ErrBroken if the mount is no longer usable, and with ErrUnreadable if its
// device cannot be read.
func (p Point) checkUsable() error {
	// Newer kernels report the shutdown of a file system. With older kernels, directories can still
	// be read from memory after a shutdown.
	if fault := p.Fault(); fault != NoFault {
		return fmt.Errorf("%w: %s", ErrBroken, fault)
	}
	// If the device returns errors, the state of the file system is unknown, and the file system
	// cannot be mounted again.
	if p.Device != "" {
		if err := readDirectly(p.Device); err != nil {
			return err
		}
	}
	if err := syncRoot(p.Path); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
}

// syncRoot opens and syncs the root directory. After a shutdown, xfs refuses to open the directory,
// and ext4 refuses to commit its journal. Both operations are fast and change nothing.
func syncRoot(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// readDirectly reads the beginning of a device, bypassing the page cache.
func readDirectly(device string) error {
	const length = 64 << 10 // a multiple of any device's block size
	failed := func(err error) error {
		return fmt.Errorf("%w: %s returns errors: %w: check whether the target is running", ErrUnreadable, device, err)
	}
	buf, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT requires
	if err != nil {
		return fmt.Errorf("read %s: allocate memory: %w", device, err)
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

// checkReplaceable fails with ErrBusy while a broken file system is also mounted at other paths,
// which running pods are using. Until these mounts are removed, the file system can be neither
// checked nor mounted again. If the device has been removed, checkReplaceable succeeds, because the
// volume will be mounted from another device.
func (m *Mounter) checkReplaceable(p Point) error {
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
		return fmt.Errorf("%w: it can be mounted again when nothing uses it: delete the pods at %s", ErrBusy, strings.Join(others, ", "))
	}
	return nil
}

// replace unmounts a mount if why wraps ErrBroken, so that the device can be mounted again. It
// returns all other errors unchanged.
func (m *Mounter) replace(p Point, why error) error {
	if !errors.Is(why, ErrBroken) {
		return why
	}
	if err := m.checkReplaceable(p); err != nil {
		return fmt.Errorf("%w: %w", why, err)
	}
	m.log.Warn("replacing a broken mount", "path", p.Path, "device", p.Device, "error", why)
	return m.unmountAll(p.Path)
}
